//! A digest by which to compare two values, whatever form they have.

use rdb::value::Flaw;
use rdb::{Crc, Fault, Part, payload, value};

/// A number that is the same for two payloads if their values are the same, whatever form they have. A stream that counts
/// wrong is taken as it is mended.
pub fn digest(payload: &[u8]) -> Option<u64> {
    let (form, mut source) = payload::open(payload).ok()?;
    // A chain for parts in order, and a sum for parts without an order.
    let (mut chain, mut sum) = (Crc::default(), form.kind() as u64);
    let mut group = Vec::new();
    let of = |words: &[&[u8]]| {
        let mut crc = Crc::default();
        for word in words {
            crc.add(&(word.len() as u64).to_le_bytes());
            crc.add(word);
        }
        crc.value()
    };
    let id_bytes = |id: rdb::Id| [id.ms.to_le_bytes(), id.seq.to_le_bytes()].concat();
    let read = value::read_on(form, &mut source, &mut |part: Part<'_>| {
        let (has_order, number) = match part {
            Part::Text(text) => (true, of(&[text])),
            Part::Element(element) => (true, of(&[element])),
            Part::Member(member) => (false, of(&[member])),
            // Both zeros are the same score.
            Part::Scored(member, score) => (false, of(&[member, &(score + 0.0).to_le_bytes()])),
            Part::Field { name, value, deadline_ms } => {
                (false, of(&[name, value, &deadline_ms.unwrap_or(0).to_le_bytes()]))
            }
            Part::Entry(id, words) => {
                let id = id_bytes(id);
                (true, of(&std::iter::once(&id[..]).chain(words.iter()).collect::<Vec<_>>()))
            }
            Part::Stream { last, .. } => (true, of(&[&id_bytes(last)])),
            Part::Group { name, last, .. } => {
                group = name.to_vec();
                (false, of(&[b"group", name, &id_bytes(last)]))
            }
            Part::Pending { id, deliveries, .. } => {
                (false, of(&[b"pending", &group, &id_bytes(id), &deliveries.to_le_bytes()]))
            }
            Part::Consumer { name, .. } => (false, of(&[b"consumer", &group, name])),
            Part::Owned(id) => (false, of(&[b"owned", &group, &id_bytes(id)])),
        };
        match has_order {
            true => chain.add(&number.to_le_bytes()),
            false => sum = sum.wrapping_add(number),
        }
        Ok::<(), Fault>(())
    });
    match read.ok()? {
        Some(Flaw::Damaged(_)) => None,
        Some(Flaw::Miscounted(_)) | None => Some(chain.value() ^ sum),
    }
}
