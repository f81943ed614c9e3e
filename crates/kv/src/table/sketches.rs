//! Sketches that count distinct elements: `PFADD`, `PFCOUNT`, `PFMERGE`. They are strings: see [`crate::sketch`].

use super::refusals::WRONG_KIND;
use super::{Record, Table};
use crate::UnixMs;
use crate::command::List;
use crate::reply::ReplyBuffer;
use crate::sketch::{NO_REGISTERS, Sketch, estimate};

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
            let mut is_changed = found.is_none();
            let mut sketch = match found {
                Some(sketch) => sketch,
                None => Sketch::new(),
            };
            for element in elements.iter() {
                is_changed |= sketch.count(element)?;
            }
            Ok(is_changed.then(|| sketch.as_bytes().to_vec()))
        });
        match counted {
            Ok(changed) => {
                out.integer(changed.is_some().into());
                changed.into_iter().for_each(|value| self.put_changed(key, &value, record));
            }
            Err(error) => out.error(error),
        }
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
