//! Abd in the test kit.

mod golden;
mod malformed;
mod schedule;
mod schedules;
mod show;

crate::registers::in_the_kit!(Abd, abd, |tag| tag.map_or(String::new(), |tag| format!(" [tag {tag}]")));
