//! How fast a client must read its answer while others wait for the memory that it takes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::answers::HeldBytes;

/// The least that a client must read, in bytes per millisecond.
const ANSWER_BYTES_PER_MS: usize = 100;

/// Over what time that is measured. A client that reads less twice in a row is too slow.
const LOOK: Duration = Duration::from_millis(500);

/// A connection's stream, with a count of what the client has taken.
pub(super) struct Paced<S> {
    stream: S,
    taken: Arc<AtomicUsize>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S) -> (Paced<S>, Arc<AtomicUsize>) {
        let taken = Arc::default();
        (Paced { stream, taken: Arc::clone(&taken) }, taken)
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.taken.fetch_add(*bytes, Ordering::Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Ends when the client takes one of its answers too slowly: less than [`ANSWER_BYTES_PER_MS`] while other answers wait for
/// the memory that it takes.
pub(super) async fn is_too_slow(answers: mpsc::Receiver<Weak<HeldBytes>>, taken: Arc<AtomicUsize>) {
    watch(answers, taken, LOOK).await;
}

async fn watch(mut answers: mpsc::Receiver<Weak<HeldBytes>>, taken: Arc<AtomicUsize>, look: Duration) {
    let least = look.as_millis() as usize * ANSWER_BYTES_PER_MS;
    while let Some(answer) = answers.recv().await {
        let mut was_slow = false;
        while answer.strong_count() > 0 {
            let before = taken.load(Ordering::Relaxed);
            tokio::time::sleep(look).await;
            let Some(held) = answer.upgrade() else { break };
            let is_slow = held.is_awaited() && taken.load(Ordering::Relaxed) - before < least;
            if is_slow && was_slow {
                return;
            }
            was_slow = is_slow;
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::AnswerMemory;

    const SOON: Duration = Duration::from_millis(20);

    /// Whether a client is too slow that has an answer of 100 bytes and takes so many bytes every 5 ms.
    async fn is_slow(bytes: usize, is_awaited: bool, is_taken_at_once: bool) -> bool {
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let memory = AnswerMemory::new(10, waker);
        memory.set_awaited(is_awaited);
        let (sender, answers) = mpsc::channel(1);
        let taken = Arc::<AtomicUsize>::default();
        let held = Arc::new(memory.hold(100));
        sender.send(Arc::downgrade(&held)).await.unwrap();
        let held = (!is_taken_at_once).then_some(held);
        let takes = async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                taken.fetch_add(bytes, Ordering::Relaxed);
            }
        };
        let is_slow = tokio::select! {
            () = watch(answers, Arc::clone(&taken), SOON) => true,
            () = takes => false,
        };
        drop((held, sender));
        is_slow
    }

    #[test]
    fn a_client_that_takes_little_is_too_slow_while_others_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assert!(is_slow(0, true, false).await);
            assert!(is_slow(100, true, false).await, "20 bytes per ms");
            assert!(!is_slow(20_000, true, false).await, "it takes much");
            assert!(!is_slow(0, false, false).await, "nobody waits");
            assert!(!is_slow(0, true, true).await, "it has its answer");
        });
    }
}
