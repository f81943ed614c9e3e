//! Sorted sets, and sets, that are combined little by little. The result is in another order than the items, so it is
//! gathered first, in a collection of its own.

use crate::command::{Aggregate, List, SetOperation, parse_score};
use crate::table::collections::Collection;
use crate::table::kind::Kind;
use crate::table::order::{Key, key_of, number_of};
use crate::table::sorted::{added, item_of, weighted};
use crate::table::sorted_view::Sorted;
use crate::table::tree::Discarded;

/// Bytes of a member in a reply in addition to its name.
const MEMBER_BYTES: usize = 5;

/// How far it has come.
#[derive(Debug)]
pub(super) struct Gathering {
    form: Form,
    aggregate: Aggregate,
    /// Of each input.
    weights: Vec<f64>,
    /// The member of this rank of the input that is looked at is next.
    next: usize,
    /// How many members are found. With `most`, they are only counted, up to that.
    pub(super) found: usize,
    pub(super) most: Option<usize>,
    pub(super) made: Collection,
    /// The reply has at least as many bytes.
    pub(super) reply_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// Members of the first input that all others have.
    Common,
    /// Those that no other has.
    Different,
    /// Those of all inputs. This one is looked at.
    Summed(usize),
}

/// The weights of inputs: keys, or keys with their weights.
pub(super) fn weights(inputs: List<'_>, is_weighted: bool) -> Option<Vec<f64>> {
    match is_weighted {
        true => inputs.pairs().map(|(_, weight)| parse_score(weight)).collect(),
        false => Some(vec![1.0; inputs.len()]),
    }
}

impl Gathering {
    /// Begins. Returns also how many members are to be looked at.
    pub(super) fn of(
        operation: SetOperation,
        inputs: &mut Vec<Collection>,
        (mut weights, aggregate): (Vec<f64>, Aggregate),
        most: Option<usize>,
    ) -> (Gathering, usize) {
        if operation != SetOperation::Difference {
            // Sums are those that one step makes, to the last digit.
            let mut pairs: Vec<_> = std::mem::take(inputs).into_iter().zip(weights).collect();
            pairs.sort_by_key(|(input, _)| input.len());
            (*inputs, weights) = pairs.into_iter().unzip();
        }
        let first = inputs.first().map_or(0, Collection::len);
        let (form, count) = match operation {
            SetOperation::Intersection => (Form::Common, first),
            SetOperation::Difference => (Form::Different, first),
            SetOperation::Union => (Form::Summed(0), inputs.iter().map(Collection::len).sum()),
        };
        let made = Collection::new(Kind::Sorted);
        (Gathering { form, aggregate, weights, next: 0, found: 0, most, made, reply_bytes: 0 }, count)
    }

    /// What a member takes in addition to what it takes in one step, in nanoseconds: it is added to an ordered collection, in
    /// which that of a union is first looked for.
    pub(super) fn made_ns(&self) -> u64 {
        match self.form {
            Form::Summed(_) => 2500,
            Form::Common | Form::Different => 300,
        }
    }

    /// Goes on for so many members. Returns whether those were the last ones that matter, of a reply of at most so many bytes.
    pub(super) fn go_on(&mut self, inputs: &[Collection], mut members: usize, reply_max: usize) -> bool {
        while members > 0 {
            let at = if let Form::Summed(at) = self.form { at } else { 0 };
            let Some(input) = inputs.get(at) else { return true };
            let before = self.next;
            for (key, member) in Sorted::of_collection(input).iter_from(before).take(members) {
                self.next += 1;
                self.look_at(inputs, (at, key), &member);
                if self.most == Some(self.found) || self.reply_bytes > reply_max {
                    return true;
                }
            }
            members -= self.next - before;
            if self.next == input.len() {
                let Form::Summed(at) = &mut self.form else { return true };
                (*at, self.next) = (*at + 1, 0);
                // An input that is empty counts, too.
                members = members.saturating_sub(1);
            }
        }
        matches!(self.form, Form::Summed(at) if at == inputs.len())
    }

    /// Looks at a member of the input at this place.
    fn look_at(&mut self, inputs: &[Collection], (at, key): (usize, Key), member: &[u8]) {
        let mut others = inputs[1..].iter().map(|input| Sorted::of_collection(input).key(member));
        let (aggregate, weights) = (self.aggregate, &self.weights);
        let own = weighted(key, weights[at]);
        let key = match self.form {
            Form::Common => others.zip(&weights[1..]).try_fold(own, |sum, (other, weight)| {
                // As in one step, a NaN product does not become 0 here: `added` handles it.
                Some(added(aggregate, sum, number_of(other?) * weight))
            }),
            Form::Different => (!others.any(|other| other.is_some())).then(|| number_of(key)),
            Form::Summed(_) => {
                let before = self.made.key_of_name(member);
                let sum = before.map_or(own, |before| added(aggregate, number_of(before), own));
                self.made.set_score(member, before, key_of(sum), &mut Discarded::default());
                if before.is_none() {
                    self.count(member);
                }
                return;
            }
        };
        if let Some(number) = key {
            self.count(member);
            if self.most.is_none() {
                self.made.insert_in_order(item_of(key_of(number), member, &mut Vec::new()));
            }
        }
    }

    fn count(&mut self, member: &[u8]) {
        self.found += 1;
        if self.most.is_none() {
            self.reply_bytes += MEMBER_BYTES + member.len();
        }
    }
}
