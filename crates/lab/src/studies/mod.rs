//! The studies, each in a folder of the same shape: `mod.rs` defines what is compared and how a point is measured,
//! `claims.rs` what the paper claims (or, without a paper, this project's goals) and how that is judged, `figures.rs`
//! what is drawn.

mod abd_vs_blocking;
mod coding_crossover;
mod leader_follower;
mod locks;
#[cfg(test)]
mod measured;
mod replication_cost;
mod side_by_side;

use crate::harness::Study;

pub use coding_crossover::{FittedWork, fitted};
pub use locks::LockClients;

/// Every study, in listing order.
pub const ALL: &[&dyn Study] = &[
    &leader_follower::LeaderFollower,
    &abd_vs_blocking::AbdVsBlocking,
    &replication_cost::ReplicationCost,
    &locks::Locks,
    &coding_crossover::CodingCrossover,
    &side_by_side::SideBySide,
];

/// The study with this name.
pub fn find(name: &str) -> Option<&'static dyn Study> {
    ALL.iter().copied().find(|study| study.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    use super::ALL;
    use crate::harness::{Checked, Claim, Plan, Results, Row, Scale, Study};

    fn plan(scale: Scale) -> Plan {
        Plan { scale, verify: false, quorate: PathBuf::from("quorate") }
    }

    #[test]
    fn arms_and_files_have_distinct_names() {
        for study in ALL {
            let mut arms: Vec<String> =
                study.arms(&plan(Scale::Full)).into_iter().map(|arm| arm.name).collect();
            let mut files: Vec<String> = study.figures().into_iter().map(|figure| figure.file).collect();
            for names in [&mut arms, &mut files] {
                let count = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), count, "{}: {names:?}", study.name());
            }
        }
    }

    /// A typo in a name would silently leave a column, a line or a table empty.
    #[test]
    fn figures_use_parameters_measures_and_arms_of_the_study() {
        for study in ALL {
            let parameters: Vec<&str> = study.parameters().iter().map(|parameter| parameter.name).collect();
            let measures: Vec<&str> = study.measures().iter().map(|measure| measure.name).collect();
            let arms: Vec<String> = study.arms(&plan(Scale::Full)).into_iter().map(|arm| arm.name).collect();
            let figures = study
                .figures()
                .into_iter()
                .map(|figure| (figure.title, vec![figure.x], vec![figure.y], figure.only, figure.arms));
            let tables = study
                .tables()
                .into_iter()
                .map(|table| (table.title, vec![], table.measures, table.only, table.arms));
            for (title, along, shown, only, of) in figures.chain(tables) {
                assert!(along.iter().all(|name| parameters.contains(name)), "{title}: {along:?}");
                assert!(shown.iter().all(|name| measures.contains(name)), "{title}: {shown:?}");
                assert!(only.iter().all(|(name, _)| parameters.contains(name)), "{title}: {only:?}");
                assert!(of.iter().all(|name| arms.contains(name)), "{title}: {of:?}");
            }
            for arm in study.arms(&plan(Scale::Full)) {
                for point in &arm.points {
                    let known: Vec<String> = point.key(&study.parameters());
                    let given = point.words().split(", ").count();
                    assert_eq!(
                        known.iter().filter(|value| !value.is_empty()).count(),
                        given,
                        "{}",
                        point.words()
                    );
                }
            }
        }
    }

    #[test]
    fn a_quick_run_measures_what_a_full_one_does_at_fewer_points() {
        for study in ALL {
            let quick = study.arms(&plan(Scale::Quick));
            let full = study.arms(&plan(Scale::Full));
            let points =
                |arms: &[crate::harness::Arm]| arms.iter().map(|arm| arm.points.len()).sum::<usize>();
            assert!(points(&quick) < points(&full), "{}", study.name());
            for arm in &quick {
                assert!(full.iter().any(|other| other.name == arm.name), "{}: {}", study.name(), arm.name);
            }
        }
    }

    /// Returns a number between 0 and 1, always the same for the same words.
    fn drawn(seed: u64, words: &[&str]) -> f64 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        words.iter().for_each(|word| {
            hasher.update(word.as_bytes());
            hasher.update(b"|");
        });
        // Neighbouring inputs have similar checksums.
        let mixed = u64::from(hasher.finalize()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Figures for every point of a study, unlike any machine's: each measure grows or falls with each parameter and
    /// from arm to arm, all by a law that the seed determines. Some are 0 throughout.
    fn invented(study: &dyn Study, seed: u64) -> Results {
        let parameters = study.parameters();
        let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
        let measures: Vec<&str> = study.measures().iter().map(|measure| measure.name).collect();
        let mut results = Results::new(&names, &measures);
        let steepness = |words: &[&str]| drawn(seed, words) * 4.0 - 2.0;
        let zeros: BTreeMap<String, f64> =
            measures.iter().map(|measure| ((*measure).to_owned(), 0.0)).collect();
        let measures: Vec<&str> =
            measures.into_iter().filter(|measure| drawn(seed, &[measure, "is zero"]) >= 0.15).collect();
        let verdict = ["ok", "ok", "unknown", "violation"][(drawn(seed, &["verdict"]) * 4.0) as usize];
        for arm in study.arms(&plan(Scale::Full)) {
            // For some seeds all arms follow one law.
            let law = if drawn(seed, &["laws"]) < 0.5 { "" } else { &arm.name };
            for point in &arm.points {
                let key = point.key(&parameters);
                let figure = |measure: &&str| {
                    let mut logarithm = drawn(seed, &[measure]) * 16.0 - 6.0;
                    logarithm += 2.0 * steepness(&[measure, &arm.name]);
                    for (name, value) in names.iter().zip(&key) {
                        logarithm += match value.parse::<f64>() {
                            Ok(number) => (1.0 + number).ln() * steepness(&[measure, name, law]),
                            Err(_) => steepness(&[measure, name, value]),
                        };
                    }
                    ((*measure).to_owned(), logarithm.exp())
                };
                let mut figures: BTreeMap<String, f64> = zeros.clone();
                figures.extend(measures.iter().map(figure));
                for repeat in 1..=3 {
                    let figures = figures
                        .iter()
                        .map(|(name, it)| (name.clone(), it * (1.0 + f64::from(repeat) / 1000.0)));
                    results.push(Row {
                        arm: arm.name.clone(),
                        point: key.clone(),
                        repeat,
                        figures: figures.collect(),
                        checked: Some(Checked {
                            operations: 10,
                            verdict: verdict.to_owned(),
                            history: String::new(),
                        }),
                    });
                }
            }
        }
        results
    }

    /// Claims that no run measures, and claims that hold only where several figures are in a narrow ratio to each
    /// other, as invented ones hardly ever are. The latter have their own tests, which produce two verdicts for each.
    const CONSTANT: [(&str, &str); 4] = [
        ("locks", "Redis with Redlock is the easiest to set up, and kazoo the most mature library"),
        ("locks", "The 90th percentile is about 20 % above the average"),
        (
            "locks",
            "The 99th percentile is about twice the average in etcd, Consul and ZooKeeper, and 4 times in Redis, where it is \
             still almost half of the others'",
        ),
        (
            "coding-crossover",
            "Erasure coding suits objects of more than 500 KB, over which the cost of encoding is spread",
        ),
    ];

    /// A verdict that is the same for any figures says nothing about them.
    #[test]
    fn verdicts_change_with_the_figures() {
        const TRIES: u64 = 200;
        for study in ALL {
            let claims = study.claims();
            let is_excused = |claim: &&Claim| CONSTANT.contains(&(study.name(), claim.claim));
            let mut left: Vec<(&Claim, BTreeSet<&str>)> = claims
                .iter()
                .filter(|claim| !is_excused(claim))
                .map(|claim| (claim, BTreeSet::new()))
                .collect();
            for seed in 0..TRIES {
                if left.is_empty() {
                    break;
                }
                let results = invented(*study, seed);
                left.retain_mut(|(claim, verdicts)| {
                    verdicts.insert((claim.judge)(&results).verdict.words());
                    verdicts.len() < 2
                });
            }
            let constant: Vec<_> = left.iter().map(|(claim, verdicts)| (claim.claim, verdicts)).collect();
            assert!(constant.is_empty(), "{}: {constant:#?}", study.name());
        }
    }
}
