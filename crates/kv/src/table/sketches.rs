//! Sketches that count distinct elements: `PFADD`, `PFCOUNT`, `PFMERGE`. They are strings: see [`crate::sketch`].

use super::kind::Kind;
use super::refusals::WRONG_KIND;
use super::{Record, Table};
use crate::UnixMs;
use crate::command::List;
use crate::reply::ReplyBuffer;
use crate::sketch::{DENSE_BYTES, NO_REGISTERS, Sketch, count_dense, estimate};

/// What `PFADD` does with a sketch that it changes.
enum Counted {
    /// It is a dense one.
    InPlace,
    /// The new value.
    Value(Vec<u8>),
}

impl Table {
    /// The sketch of a key; `None` if the key does not exist.
    fn sketch(&self, key: &[u8], now: UnixMs) -> Result<Option<Sketch<'_>>, &'static str> {
        match self.peek(key, now) {
            None => Ok(None),
            Some(entry) if entry.is_bytes() => Sketch::of(entry.value()).map(Some),
            Some(_) => Err(WRONG_KIND),
        }
    }

    pub(super) fn count_elements(
        &mut self,
        key: &[u8],
        elements: List<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let counted = self.sketch(key, record.time).and_then(|found| {
            if let Some(dense) = found.as_ref().filter(|sketch| sketch.is_dense()) {
                let is_changed = elements.iter().any(|element| dense.is_dense_changed_by(element));
                return Ok(is_changed.then_some(Counted::InPlace));
            }
            let mut is_changed = found.is_none();
            let mut sketch = match found {
                Some(sketch) => sketch,
                None => Sketch::new(),
            };
            for element in elements.iter() {
                is_changed |= sketch.count(element)?;
            }
            Ok(is_changed.then(|| Counted::Value(sketch.as_bytes().to_vec())))
        });
        match counted {
            Ok(changed) => {
                out.integer(changed.is_some().into());
                match changed {
                    Some(Counted::Value(value)) => self.put_changed(key, &value, record),
                    Some(Counted::InPlace) => self.count_in_place(key, elements, record),
                    None => {}
                }
            }
            Err(error) => out.error(error),
        }
    }

    /// Counts elements in a dense sketch, which takes no memory.
    fn count_in_place(&mut self, key: &[u8], elements: List<'_>, record: Record) {
        let Some(place) = self.find_live(self.index.hash(key), key, record) else { return };
        let deadline = self.index.entry(place).deadline();
        let stamp = record.stamp(deadline, Kind::Raw);
        self.change(place, deadline, record, |entry| {
            entry.edit(DENSE_BYTES, stamp, |bytes| count_dense(bytes, elements.iter()));
        });
    }

    pub(super) fn estimate(&mut self, keys: List<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        let (mut all, mut known) = (NO_REGISTERS, None);
        for key in keys.iter() {
            let merged = self.sketch(key, now).and_then(|sketch| {
                known = sketch.as_ref().and_then(Sketch::known_estimate);
                sketch.map_or(Ok(()), |sketch| sketch.merge_into(&mut all))
            });
            if let Err(error) = merged {
                return out.error(error);
            }
        }
        match known {
            Some(known) if keys.len() == 1 => out.integer(known as i64),
            _ => out.integer(estimate(&all) as i64),
        }
    }

    pub(super) fn merge_sketches(
        &mut self,
        to: &[u8],
        keys: List<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let (mut all, mut is_dense) = (NO_REGISTERS, false);
        for key in std::iter::once(to).chain(keys.iter()) {
            let merged = self.sketch(key, record.time).and_then(|sketch| {
                is_dense |= sketch.as_ref().is_some_and(Sketch::is_dense);
                sketch.map_or(Ok(()), |sketch| sketch.merge_into(&mut all))
            });
            if let Err(error) = merged {
                return out.error(error);
            }
        }
        self.put_changed(to, Sketch::with(&all, is_dense).as_bytes(), record);
        out.ok();
    }
}
