//! One operation as a state machine without I/O.
//!
//! A flight returns its next request ([`Step`]) and receives the result ([`Reply`]), until it is
//! done. Retries, backoff and lost replies are handled inside; a driver only forwards steps to a
//! store. So the blocking and the asynchronous driver are a dozen lines each, and a simulation can
//! stop between any two steps.
//!
//! A flight is written as a sequential `async` function that makes requests through [`Io`]. It
//! needs no executor: [`Flight::step`] polls once, and the function is pending only at a request.
//!
//! # Never
//! - wakes a task, reads a clock, spawns a task or thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::codec::{StoreFormat, within};
use super::engine::{Answer, Page, Read};
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;

/// The next request of a flight.
#[derive(Debug)]
pub(crate) enum Step<A> {
    /// Perform these reads; answer with [`Reply::Read`].
    Read(Vec<Read>),
    /// Commit these transactions, each independently; answer with [`Reply::Committed`].
    Commit(Vec<Txn>),
    /// Wait for this many ticks; answer with [`Reply::Waited`].
    Wait(u64),
    /// The flight is done; this is its result.
    Done(A),
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Answers, in the order of the reads.
    Read(Result<Vec<Answer>, InfraError>),
    /// Outcomes, in the order of the transactions.
    Committed(Vec<Result<CommitOutcome, InfraError>>),
    /// The wait is over.
    Waited,
}

/// An operation with result `A`.
pub struct Flight<'f, A> {
    route: Pin<Box<dyn Future<Output = A> + Send + 'f>>,
    io: Io,
    /// In which it writes values, and which it raises to that of the values it reads.
    format: StoreFormat,
}

impl<'f, A> Flight<'f, A> {
    /// Creates a flight of the function `route`, which makes requests through its [`Io`].
    pub(super) fn new<F>(route: impl FnOnce(Io) -> F) -> Self
    where
        F: Future<Output = A> + Send + 'f,
    {
        Self::writing(StoreFormat::default(), route)
    }

    /// As [`new`](Self::new), on a store of this format.
    pub(super) fn writing<F>(format: StoreFormat, route: impl FnOnce(Io) -> F) -> Self
    where
        F: Future<Output = A> + Send + 'f,
    {
        let io = Io::default();
        Self { route: Box::pin(route(io.clone())), io, format }
    }

    /// Returns the size of the future.
    #[cfg(test)]
    pub(super) fn byte_count(&self) -> usize {
        size_of_val(&*self.route)
    }

    /// Returns the next step.
    ///
    /// # Panics
    ///
    /// Panics if the last step was not answered by [`Flight::answer`], or if the flight is done.
    pub(crate) fn step(&mut self) -> Step<A> {
        // A no-op waker: the driver polls again exactly when it has passed the reply.
        let Self { route, format, .. } = self;
        let polled =
            within(format, || route.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        match polled {
            Poll::Ready(answer) => {
                let is_idle = matches!(self.io.channel().slot, Slot::Empty);
                assert!(is_idle, "a flight that is done has no open request");
                Step::Done(answer)
            }
            // A pending function without a request would wait for nothing.
            Poll::Pending => match std::mem::replace(&mut self.io.channel().slot, Slot::Asked) {
                Slot::Asking(ask) => ask.step(),
                Slot::Empty | Slot::Asked | Slot::Reply(_) => {
                    panic!("a step is answered before the next one is requested")
                }
            },
        }
    }

    /// Sets the store's [`binding`](super::Store::binding), before each step. By default the store
    /// binds no keys.
    pub(crate) fn set_binding(&mut self, binding: Option<u64>) {
        self.io.channel().binding = binding;
    }

    /// Passes the result of the last step to the flight.
    ///
    /// # Panics
    ///
    /// Panics if the flight has no open request: the reply would be taken for that of the next
    /// request.
    pub(crate) fn answer(&mut self, reply: Reply) {
        let slot = &mut self.io.channel().slot;
        assert!(matches!(slot, Slot::Asked), "each request has one reply");
        *slot = Slot::Reply(reply);
    }
}

impl<A> fmt::Debug for Flight<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}

/// The request channel of a flight, with a capacity of one. Clones share the channel.
#[derive(Clone, Default)]
pub(super) struct Io(Arc<Mutex<Channel>>);

#[derive(Default)]
struct Channel {
    slot: Slot,
    /// As last set by the driver.
    binding: Option<u64>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    Asking(Ask),
    /// The driver has the request.
    Asked,
    Reply(Reply),
}

enum Ask {
    Read(Vec<Read>),
    Commit(Vec<Txn>),
    Wait(u64),
}

impl Ask {
    fn step<A>(self) -> Step<A> {
        match self {
            Self::Read(reads) => Step::Read(reads),
            Self::Commit(txns) => Step::Commit(txns),
            Self::Wait(ticks) => Step::Wait(ticks),
        }
    }
}

/// Panic message for a driver whose reply does not match the request.
const CROSSED: &str = "a driver answers the open request";

impl Io {
    /// Returns the store's current binding; `None` if the store binds no keys.
    pub(super) fn binding(&self) -> Option<u64> {
        self.channel().binding
    }

    /// Returns the answers to `reads`, in their order and from one snapshot.
    pub(super) async fn read(&self, reads: Vec<Read>) -> Result<Answers, InfraError> {
        let requested = reads.len();
        assert!(requested > 0, "a request contains a read");
        let Reply::Read(answers) = self.ask(Ask::Read(reads)).await else {
            unreachable!("{CROSSED}")
        };
        // With fewer answers than reads, each answer would be taken for that of another read.
        answers.map(|answers| {
            assert!(answers.len() == requested, "a store answers every read");
            Answers(answers.into_iter())
        })
    }

    /// Returns the values of `keys`, in their order and from one snapshot.
    pub(super) async fn load(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, InfraError> {
        let count = keys.len();
        let mut answers = self.read(keys.into_iter().map(Read::Get).collect()).await?;
        let values: Vec<_> = (0..count).map(|_| answers.value()).collect();
        answers.assert_used();
        Ok(values)
    }

    pub(super) async fn scan(&self, range: KeyRange, limit: usize) -> Result<Page, InfraError> {
        assert!(limit > 0, "a page holds at least one key");
        let mut answers = self.read(vec![Read::Scan { range, limit }]).await?;
        let page = answers.page();
        answers.assert_used();
        assert!(page.len() <= limit, "a store respects the page limit");
        Ok(page)
    }

    /// Returns every key of `range`, page by page.
    pub(super) async fn scan_all(&self, range: KeyRange, page: usize) -> Result<Page, InfraError> {
        let (mut found, mut rest) = (Page::new(), range);
        loop {
            let next = self.scan(rest, page).await?;
            // Each page starts after the last one, so the loop ends.
            let first = next.first().map(|(key, _)| key);
            assert!(
                first.is_none() || first != found.last().map(|(key, _)| key),
                "no page is returned twice"
            );
            let more = next.last().filter(|_| next.len() >= page).map(|(key, _)| rest.after(key));
            found.extend(next);
            match more {
                Some(next) => rest = next,
                None => return Ok(found),
            }
        }
    }

    /// Commits `txns` and returns one outcome each, in their order.
    pub(super) async fn commit_each(
        &self,
        txns: Vec<Txn>,
    ) -> Vec<Result<CommitOutcome, InfraError>> {
        let sent = txns.len();
        assert!(sent > 0, "a request contains a transaction");
        let Reply::Committed(outcomes) = self.ask(Ask::Commit(txns)).await else {
            unreachable!("{CROSSED}")
        };
        // With fewer outcomes, one would be taken for that of another transaction.
        assert!(outcomes.len() == sent, "a store returns every outcome");
        outcomes
    }

    pub(super) async fn commit(&self, txn: Txn) -> Result<CommitOutcome, InfraError> {
        self.commit_each(vec![txn]).await.pop().expect(CROSSED)
    }

    /// Waits for `ticks`; returns at once if zero.
    pub(super) async fn pause(&self, ticks: u64) {
        // Zero is no step: a simulator would have to schedule it, and a driver would yield.
        if ticks > 0 {
            let reply = self.ask(Ask::Wait(ticks)).await;
            assert!(matches!(reply, Reply::Waited), "{CROSSED}");
        }
    }

    fn ask(&self, ask: Ask) -> Pending<'_> {
        Pending { io: self, ask: Some(ask) }
    }

    fn channel(&self) -> MutexGuard<'_, Channel> {
        // The lock is held for one assignment, so a panic elsewhere cannot leave a partial value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of a read, consumed in the order of the reads.
pub(super) struct Answers(std::vec::IntoIter<Answer>);

impl Answers {
    pub(super) fn value(&mut self) -> Option<Versioned> {
        let Some(Answer::Value(value)) = self.0.next() else { unreachable!("{CROSSED}") };
        value
    }

    /// Panics if an answer is left: it would belong to a read whose result was ignored.
    pub(super) fn assert_used(&mut self) {
        assert!(self.0.next().is_none(), "every answer was used");
    }

    pub(super) fn page(&mut self) -> Page {
        let Some(Answer::Page(page)) = self.0.next() else { unreachable!("{CROSSED}") };
        page
    }

    pub(super) fn count(&mut self) -> u64 {
        let Some(Answer::Count(count)) = self.0.next() else { unreachable!("{CROSSED}") };
        count
    }
}

/// A request until its reply arrives.
struct Pending<'i> {
    io: &'i Io,
    ask: Option<Ask>,
}

impl Future for Pending<'_> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        let asked = self.ask.take();
        let slot = &mut self.io.channel().slot;
        // A reply to an earlier request would be taken for that of the next one.
        assert!(asked.is_none() || !matches!(slot, Slot::Reply(_)), "a reply is taken once");
        if let Some(ask) = asked {
            assert!(matches!(slot, Slot::Empty), "a flight has one open request");
            *slot = Slot::Asking(ask);
            return Poll::Pending;
        }
        match std::mem::take(slot) {
            Slot::Reply(reply) => Poll::Ready(reply),
            other @ (Slot::Empty | Slot::Asking(_) | Slot::Asked) => {
                // Polled without a reply: keep the request and stay pending; `step` panics on the
                // misuse.
                *slot = other;
                Poll::Pending
            }
        }
    }
}
