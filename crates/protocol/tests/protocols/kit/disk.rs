//! A node's disk: records in order, some of them synced, and the newest whole checkpoint.

use protocol::Progress;

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    checkpoint: Vec<Vec<u8>>,
    /// Each with its position, counted from 1 over all incarnations.
    records: Vec<(u64, Vec<u8>)>,
    written: u64,
    durable: u64,
    /// Where this incarnation's records begin.
    incarnation_at: u64,
    /// A checkpoint that is being written, and where it began.
    unfinished: Option<(u64, Vec<Vec<u8>>)>,
}

impl Disk {
    pub(crate) fn write(&mut self, records: &[Vec<u8>]) {
        for record in records {
            self.written += 1;
            self.records.push((self.written, record.clone()));
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// The position of one of this incarnation's records, counted from 1. `None` for 0.
    pub(crate) fn position_of(&self, record: u64) -> Option<u64> {
        (record > 0).then_some(self.incarnation_at + record)
    }

    pub(crate) fn is_durable(&self, position: u64) -> bool {
        position <= self.durable
    }

    /// Makes everything up to a position durable. Returns the last of this incarnation's records
    /// that is.
    pub(crate) fn sync(&mut self, position: u64) -> u64 {
        self.durable = position;
        position - self.incarnation_at
    }

    pub(crate) fn crash(&mut self, kept: u64) {
        self.unfinished = None;
        let end = (self.durable + kept).min(self.written);
        self.records.retain(|(position, _)| *position <= end);
        (self.written, self.durable) = (end, end);
    }

    /// Returns all records, for a replica that starts.
    pub(crate) fn begin_incarnation(&mut self) -> impl Iterator<Item = &Vec<u8>> {
        self.incarnation_at = self.written;
        self.checkpoint.iter().chain(self.records.iter().map(|(_, record)| record))
    }

    /// Returns the records that a crash would leave.
    pub(crate) fn durable_records(&self) -> impl Iterator<Item = &[u8]> {
        let durable = self.records.iter().filter(|(position, _)| *position <= self.durable);
        self.checkpoint.iter().chain(durable.map(|(_, record)| record)).map(Vec::as_slice)
    }

    pub(crate) fn is_checkpointing(&self) -> bool {
        self.unfinished.is_some()
    }

    pub(crate) fn begin_checkpoint(&mut self) {
        self.unfinished = Some((self.written, Vec::new()));
    }

    /// Takes a record of the checkpoint. Returns true when it was the last one, and the checkpoint
    /// counts.
    pub(crate) fn checkpoint_record(&mut self, progress: Progress, record: Vec<u8>) -> bool {
        let Some((at, mut records)) = self.unfinished.take() else { return false };
        records.push(record);
        match progress {
            Progress::More => self.unfinished = Some((at, records)),
            // The checkpoint replaces durable records only once it is durable itself.
            Progress::Whole if self.durable >= at => {
                self.checkpoint = records;
                self.records.retain(|(position, _)| *position > at);
                return true;
            }
            Progress::Whole | Progress::Abandoned => {}
        }
        false
    }
}
