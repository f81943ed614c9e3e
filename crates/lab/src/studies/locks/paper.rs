//! The paper's tables 1 and 2, and the corresponding measures.

/// The figures of a column of the paper, by the names of our measures.
pub(super) const MEASURES: [&str; 6] = ["avg_ms", "p50_ms", "min_ms", "max_ms", "p90_ms", "p99_ms"];

/// The paper's figures, as separate measures.
pub(super) const PAPER_MEASURES: [&str; 6] =
    ["paper_avg_ms", "paper_p50_ms", "paper_min_ms", "paper_max_ms", "paper_p90_ms", "paper_p99_ms"];

/// Its numbers of processes.
pub(super) const PROCESSES: [u32; 3] = [1, 3, 5];

/// A system of the paper: its columns for 1, 3 and 5 processes, each in the order of [`MEASURES`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    different: [[f64; 6]; 3],
    same: [[f64; 6]; 3],
}

impl Column {
    /// The paper's figures at a point, if there are any.
    pub(super) fn at(&self, is_same_key: bool, processes: u32) -> Option<[f64; 6]> {
        let table = if is_same_key { &self.same } else { &self.different };
        let index = PROCESSES.iter().position(|count| *count == processes)?;
        Some(table[index])
    }
}

/// etcd 3.3.9 with python-etcd3.
pub(super) const ETCD: Column = Column {
    different: [
        [4.91, 4.66, 3.99, 20.97, 5.51, 9.38],
        [6.8, 6.49, 4.43, 21.75, 8.32, 13.41],
        [7.68, 7.33, 4.19, 28.43, 9.31, 16.1],
    ],
    same: [
        [4.91, 4.66, 3.99, 20.97, 5.51, 9.38],
        [6.98, 6.48, 4.23, 38.7, 8.5, 14.14],
        [7.6, 7.22, 4.16, 47.13, 9.16, 16.79],
    ],
};

/// Consul 1.4.0 with consul-lock.
pub(super) const CONSUL: Column = Column {
    different: [
        [11.7, 11.5, 10.5, 28.3, 12.42, 15.09],
        [13.6, 13.12, 10.42, 45.38, 16.09, 19.74],
        [16.52, 16.01, 10.38, 119.71, 20.29, 25.07],
    ],
    same: [
        [11.7, 11.5, 10.5, 28.3, 12.42, 15.09],
        [13.84, 13.49, 10.62, 151.96, 16.0, 20.1],
        [16.36, 15.89, 10.18, 95.05, 20.85, 26.25],
    ],
};

/// ZooKeeper 3.4.13 with kazoo.
pub(super) const ZOOKEEPER: Column = Column {
    different: [
        [3.64, 3.41, 2.86, 36.64, 4.3, 7.49],
        [4.53, 4.4, 2.79, 15.35, 5.97, 7.65],
        [5.9, 5.74, 2.76, 19.98, 7.4, 9.97],
    ],
    same: [
        [3.64, 3.41, 2.86, 36.64, 4.3, 7.49],
        [4.82, 4.65, 2.84, 20.93, 6.3, 8.9],
        [5.94, 5.79, 3.07, 19.98, 7.4, 10.17],
    ],
};

/// Three of Redis 5.0.3 with redlock-py.
pub(super) const REDIS: Column = Column {
    different: [
        [1.2, 1.12, 0.95, 12.82, 1.32, 2.93],
        [1.36, 1.26, 0.97, 14.13, 1.56, 3.37],
        [1.3, 1.25, 0.98, 9.42, 1.49, 5.07],
    ],
    same: [
        [1.2, 1.12, 0.95, 12.82, 1.32, 2.93],
        [3.78, 1.15, 0.96, 414.52, 1.3, 5.07],
        [5.7, 1.1, 0.93, 411.2, 1.3, 203.87],
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A typo would break the order of a column.
    #[test]
    fn each_column_is_in_the_order_of_its_quantiles() {
        for column in [ETCD, CONSUL, ZOOKEEPER, REDIS] {
            for [avg, median, min, max, p90, p99] in column.different.into_iter().chain(column.same) {
                assert!(min <= median && median <= p90 && p90 <= p99 && p99 <= max, "{min} to {max}");
                assert!(min < avg && avg < max, "{avg}");
            }
            assert_eq!(column.different[0], column.same[0], "one process competes with nobody");
        }
    }

    #[test]
    fn a_column_is_selected_by_point() {
        assert_eq!(REDIS.at(true, 5).map(|column| column[5]), Some(203.87));
        assert_eq!(ETCD.at(false, 4), None);
    }
}
