//! Group commit without a thread of its own: whoever comes first drives for all who wait.
//!
//! A caller boards with a job. If nobody drives, it drives: it takes every job that is waiting,
//! does them in one go, and hands out the answers. Whoever boards meanwhile waits for the next
//! convoy, which is driven by the first of them. So a caller alone pays no thread switch, and
//! nobody ever waits for a convoy to fill: what queued up during the last one is what the next one
//! takes.
//!
//! The lead is passed on before the answers are handed out, so the next convoy is on its way while
//! the callers of the last one wake up.
//!
//! # Invariants
//! - While jobs wait, somebody drives or has been told to.
//! - A driver is always the first of those who wait, so its own job is in the convoy it drives.
//! - A driver that panics leaves nobody waiting: the others learn that their answer is lost.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs `J` that are done together and answered one by one with `A`.
#[derive(Debug)]
pub(crate) struct Convoy<J, A> {
    road: Mutex<Road<J, A>>,
    /// The most load of one convoy; a job that is heavier alone drives alone.
    load_max: usize,
}

#[derive(Debug)]
struct Road<J, A> {
    waiting: VecDeque<Passenger<J, A>>,
    /// Whether somebody drives, or has been told to.
    is_driven: bool,
}

#[derive(Debug)]
struct Passenger<J, A> {
    job: J,
    load: usize,
    seat: Arc<Seat<A>>,
}

/// Where one caller waits.
#[derive(Debug)]
struct Seat<A> {
    word: Mutex<Word<A>>,
    said: Condvar,
}

#[derive(Debug)]
enum Word<A> {
    /// Nothing yet.
    Wait,
    /// You are the first now.
    Drive,
    /// This came of your job.
    Answer(A),
    /// The driver is gone, and what it did is not known.
    Lost,
}

impl<J, A> Convoy<J, A> {
    /// A convoy that takes up to `load_max` at once.
    pub(crate) const fn new(load_max: usize) -> Self {
        let road = Road { waiting: VecDeque::new(), is_driven: false };
        Self { road: Mutex::new(road), load_max }
    }

    /// Has `job` done, by `drive` together with others or by the `drive` of another caller, and
    /// answers what came of it; `None` if the driver panicked. `drive` gives one answer for each
    /// job, in their order.
    pub(crate) fn ride(
        &self,
        job: J,
        load: usize,
        drive: impl FnOnce(Vec<J>) -> Vec<A>,
    ) -> Option<A> {
        let seat = Arc::new(Seat { word: Mutex::new(Word::Wait), said: Condvar::new() });
        if !self.board(Passenger { job, load, seat: Arc::clone(&seat) }) {
            match seat.listen() {
                Word::Answer(answer) => return Some(answer),
                Word::Lost => return None,
                Word::Drive | Word::Wait => {}
            }
        }
        let (jobs, seats) = self.take();
        let mut trip = Trip { convoy: self, seats, is_led: true };
        let answers = drive(jobs);
        trip.arrive(answers);
        drop(trip);
        match seat.listen() {
            Word::Answer(answer) => Some(answer),
            Word::Lost | Word::Drive | Word::Wait => None,
        }
    }

    /// Whether the passenger drives at once.
    fn board(&self, passenger: Passenger<J, A>) -> bool {
        let mut road = self.road();
        road.waiting.push_back(passenger);
        !std::mem::replace(&mut road.is_driven, true)
    }

    /// The jobs of the next convoy and the seats of their callers, the driver's first.
    fn take(&self) -> (Vec<J>, VecDeque<Arc<Seat<A>>>) {
        let mut road = self.road();
        let mut load = 0_usize;
        let mut fits = |passenger: &Passenger<J, A>| {
            load = load.saturating_add(passenger.load);
            load <= self.load_max
        };
        let count = road.waiting.iter().take_while(|it| fits(it)).count().max(1);
        road.waiting.drain(..count).map(|passenger| (passenger.job, passenger.seat)).unzip()
    }

    /// Tells the first who waits to drive.
    fn pass_lead(&self) {
        let mut road = self.road();
        match road.waiting.front() {
            Some(next) => next.seat.say(Word::Drive),
            None => road.is_driven = false,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_driven(&self) -> bool {
        let road = self.road();
        // The driver has taken its own job by then.
        road.is_driven && road.waiting.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.road().waiting.len()
    }

    fn road(&self) -> MutexGuard<'_, Road<J, A>> {
        // Nothing that can panic runs under this lock.
        self.road.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A> Seat<A> {
    fn say(&self, word: Word<A>) {
        *self.word() = word;
        self.said.notify_one();
    }

    /// Waits for a word, and takes it.
    fn listen(&self) -> Word<A> {
        let mut word = self.word();
        loop {
            match std::mem::replace(&mut *word, Word::Wait) {
                Word::Wait => {
                    word = self.said.wait(word).unwrap_or_else(PoisonError::into_inner);
                }
                said => return said,
            }
        }
    }

    fn word(&self) -> MutexGuard<'_, Word<A>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A convoy on its way. Dropping it, also by a panic, leaves nobody waiting.
struct Trip<'c, J, A> {
    convoy: &'c Convoy<J, A>,
    /// Those who have no answer yet.
    seats: VecDeque<Arc<Seat<A>>>,
    /// Whether the lead was not passed on yet.
    is_led: bool,
}

impl<J, A> Trip<'_, J, A> {
    fn arrive(&mut self, answers: Vec<A>) {
        self.pass_lead();
        for answer in answers {
            if let Some(seat) = self.seats.pop_front() {
                seat.say(Word::Answer(answer));
            }
        }
    }

    fn pass_lead(&mut self) {
        if std::mem::replace(&mut self.is_led, false) {
            self.convoy.pass_lead();
        }
    }
}

impl<J, A> Drop for Trip<'_, J, A> {
    fn drop(&mut self) {
        self.pass_lead();
        self.seats.drain(..).for_each(|seat| seat.say(Word::Lost));
    }
}
