//! Writes that were acknowledged before an attack and must be readable after it.

use crate::bounded::Cluster;

/// The keys `kept:0`, `kept:1` and so on. The value of each is its number.
pub(crate) struct Kept {
    count: usize,
}

impl Kept {
    /// Writes `count` keys, to all nodes in turn, until all are acknowledged.
    pub(crate) fn write(cluster: &Cluster, nodes: u16, count: usize) -> Kept {
        for id in 1..=nodes {
            let mut client = cluster.client(id);
            let own: Vec<usize> =
                (0..count).filter(|number| number % usize::from(nodes) + 1 == usize::from(id)).collect();
            let requests: String =
                own.iter().map(|number| format!("SET kept:{number} {number}\r\n")).collect();
            client.send(requests);
            own.iter().for_each(|_| assert_eq!(client.line(), "+OK"));
        }
        Kept { count }
    }

    /// Asserts that a node returns all of them.
    #[track_caller]
    pub(crate) fn assert_at(&self, cluster: &Cluster, id: u16) {
        let mut client = cluster.client(id);
        let requests: String = (0..self.count).map(|number| format!("GET kept:{number}\r\n")).collect();
        client.send(requests);
        for number in 0..self.count {
            let value = number.to_string();
            let length = client.line();
            assert_eq!(length, format!("${}", value.len()), "kept:{number} at node {id}");
            assert_eq!(client.line(), value, "kept:{number} at node {id}");
        }
    }
}
