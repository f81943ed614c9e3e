//! The threads on which the store of large values is used.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use storage::{ValueResult, ValueWork};

use super::TreeValues;

use crate::thread;

/// The number of threads that read.
const READERS: usize = 2;

/// A piece of work and its result.
type Finished = (ValueWork, ValueResult);

/// Uses the store beside the loop: one thread for changes, in order, and several that read.
pub struct ValueThreads {
    lanes: Option<[Sender<ValueWork>; 2]>,
    finished: Receiver<Finished>,
    /// How much work has begun whose end was not taken.
    under_way: usize,
    threads: Vec<JoinHandle<()>>,
}

impl ValueThreads {
    /// Starts the threads. `wake` is called whenever work is finished; it should end the loop's poll.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(store: &TreeValues, wake: impl Fn() + Clone + Send + 'static) -> io::Result<ValueThreads> {
        let (sender, finished) = channel();
        let mut threads = Vec::new();
        let mut lane = |name: &str, count: usize| -> io::Result<Sender<ValueWork>> {
            let (begin, begun) = channel::<ValueWork>();
            let begun = Arc::new(Mutex::new(begun));
            for _ in 0..count {
                let (mut store, sender, wake, begun) =
                    (store.clone(), sender.clone(), wake.clone(), Arc::clone(&begun));
                threads.push(thread::start(name, move || {
                    loop {
                        // A waiting thread holds the lock; it is free as soon as there is work.
                        let work = begun.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(work) = work else { return };
                        let result = work.run(&mut store);
                        // There is no receiver any more when the server ends.
                        let _ = sender.send((work, result));
                        wake();
                    }
                })?);
            }
            Ok(begin)
        };
        let lanes = [lane("values-write", 1)?, lane("values-read", READERS)?];
        Ok(ValueThreads { lanes: Some(lanes), finished, under_way: 0, threads })
    }

    /// Starts work. Returns at once.
    pub fn begin(&mut self, work: ValueWork) {
        self.under_way += 1;
        if let Some([write, read]) = &self.lanes {
            // A lane ends only when this value is dropped.
            let _ = if work.is_read() { read.send(work) } else { write.send(work) };
        }
    }

    /// Returns finished work and its result.
    #[inline]
    pub fn take_finished(&mut self) -> Option<Finished> {
        if self.under_way == 0 {
            return None;
        }
        let finished = self.finished.try_recv().ok()?;
        self.under_way -= 1;
        Some(finished)
    }
}

impl Drop for ValueThreads {
    /// Waits for work that has begun: no write may follow the release of the folder's lock.
    fn drop(&mut self) {
        self.lanes = None;
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
