//! Commands whose answer is known, unless a key is missing or holds another kind of value.

use super::Table;
use super::refusals::WRONG_KIND;
use crate::UnixMs;
use crate::command::{Answer, Foreseen};
use crate::reply::{Reply, ReplyBuffer};

impl Table {
    pub(super) fn answer_foreseen(&mut self, foreseen: &Foreseen<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        for key in foreseen.keys() {
            let kinds = self.peek(key, now).map(|entry| entry.kind().as_set());
            self.count_lookup(kinds.is_some());
            match (kinds, foreseen.group()) {
                (Some(kinds), _) if !foreseen.kinds().meets(kinds) => {
                    return match foreseen.if_other() {
                        Some(text) => out.push(Reply::Error(text)),
                        None => out.error(WRONG_KIND),
                    };
                }
                (_, Some(group)) => {
                    if let Some(error) = self.lacks_group(key, group, now) {
                        return out.error(&error);
                    }
                }
                (None, None) => {
                    if let Some(answer) = foreseen.if_missing() {
                        return answer.write(out);
                    }
                }
                (Some(_), None) => {}
            }
        }
        foreseen.answer().write(out);
    }
}

impl Answer<'_> {
    /// Appends it as one reply.
    fn write(self, out: &mut ReplyBuffer) {
        match self {
            Answer::Error(text) => out.push(Reply::Error(text)),
            Answer::Integer(number) => out.integer(number),
            Answer::Null => out.null(),
            Answer::EmptyScan => {
                out.array(2);
                out.bulk(b"0");
                out.array(0);
            }
        }
    }
}
