//! The studies: a folder of the same shape for each. `mod.rs` says what is compared and how a point is measured,
//! `claims.rs` what the paper says (or, without one, what is asked) and how that is judged, `figures.rs` what is drawn.

mod abd_vs_blocking;
mod coding_crossover;
mod leader_follower;
mod locks;
mod replication_cost;
mod side_by_side;

use crate::harness::Study;

pub use coding_crossover::{FittedWork, fitted};
pub use locks::LockClients;

/// Every study, in the order in which they are listed.
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
    use std::path::PathBuf;

    use super::ALL;
    use crate::harness::{Plan, Scale};

    fn plan(scale: Scale) -> Plan {
        Plan { scale, verify: false, quorate: PathBuf::from("quorate") }
    }

    #[test]
    fn arms_and_files_have_names_of_their_own() {
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

    /// A slip in a name would silently leave a column, a line or a table empty.
    #[test]
    fn what_is_drawn_is_a_parameter_a_measure_and_an_arm_of_the_study() {
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
}
