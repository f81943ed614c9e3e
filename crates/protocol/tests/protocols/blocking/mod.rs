//! `blocking` in the test kit.

mod contention;
mod golden;
mod schedule;
mod schedules;
mod show;

crate::registers::in_the_kit!(Blocking, blocking, |tag| match tag {
    Some(tag) => format!(" [done {tag}]"),
    None => " [done]".into(),
});
