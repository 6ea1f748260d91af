//! The sink of the campaign: it stores the effect of each key with its fence, and refuses a lower
//! fence for the same key.
//!
//! It is a thread of the campaign behind a Unix socket, so no fault of the network reaches it, and
//! a worker that is stopped holds no lock of it: a worker without its lease can always write, and
//! only the fence refuses it. The replies also set the pace, so that the keys last as long as the
//! faults.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::linear::Nanos;
use crate::Outcome;
use crate::etcd_network::history::monotonic;

/// Part of the keys that is left when the faults end, in percent, so that every worker has work
/// during all of them.
const LEFT_AT_THE_END: u64 = 30;

/// The longest time that a worker spends on a key: much less than a lease.
const PAUSE_MAX: Duration = Duration::from_millis(1_000);

/// An effect that reached the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) time: Nanos,
    pub(super) key: u64,
    pub(super) fence: u64,
    pub(super) shard: u64,
    pub(super) worker: usize,
    pub(super) is_accepted: bool,
}

/// The sink.
#[derive(Debug)]
pub(super) struct Sink {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    fences: Vec<u64>,
    effects: Vec<Effect>,
    done: u64,
    pace: Pace,
}

/// The speed at which keys are processed.
#[derive(Clone, Copy, Debug)]
struct Pace {
    until: Instant,
    threads: u32,
}

impl Sink {
    /// Starts a sink for the keys below `keys` that `threads` process until `until`.
    pub(super) fn start(path: &Path, keys: u64, threads: u32, until: Instant) -> Outcome<Self> {
        let fences = vec![0; usize::try_from(keys)?];
        let pace = Pace { until, threads };
        let state = Arc::new(Mutex::new(State { fences, effects: Vec::new(), done: 0, pace }));
        let (listener, shared) = (UnixListener::bind(path)?, Arc::clone(&state));
        // Both kinds of threads end with the process, or with their connection.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(&stream, &state));
            }
        });
        Ok(Self { state })
    }

    /// Returns every effect in the order of arrival.
    pub(super) fn effects(&self) -> Vec<Effect> {
        lock(&self.state).effects.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of one thread of a worker until it ends.
fn serve(stream: &UnixStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [key, fence, shard, worker] = numbers[..] else { return };
        let Ok(worker) = usize::try_from(worker) else { return };
        let Some((is_accepted, pause)) = lock(state).write(key, fence, shard, worker) else {
            return;
        };
        let answer = if is_accepted { "accepted" } else { "refused" };
        let mut stream = stream;
        if writeln!(stream, "{answer} {}", pause.as_millis()).is_err() {
            return;
        }
    }
}

impl State {
    /// Stores an effect, unless its key has one with a higher fence. Returns whether it did, and
    /// how long the next key takes; `None` if there is no such key.
    fn write(
        &mut self,
        key: u64,
        fence: u64,
        shard: u64,
        worker: usize,
    ) -> Option<(bool, Duration)> {
        let stored = self.fences.get_mut(usize::try_from(key).ok()?)?;
        let is_accepted = fence >= *stored;
        self.done += u64::from(*stored == 0);
        *stored = fence.max(*stored);
        let time = monotonic();
        self.effects.push(Effect { time, key, fence, shard, worker, is_accepted });
        let keep = self.fences.len() as u64 * LEFT_AT_THE_END / 100;
        let left = (self.fences.len() as u64).saturating_sub(self.done + keep).max(1);
        let time = self.pace.until.saturating_duration_since(Instant::now());
        let pause = time * self.pace.threads / u32::try_from(left).unwrap_or(u32::MAX);
        Some((is_accepted, pause.min(PAUSE_MAX)))
    }
}

/// The connection of one thread of a worker.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    pause: Duration,
}

impl Connection {
    pub(super) fn open(path: &Path) -> Outcome<Self> {
        Ok(Self { stream: BufReader::new(UnixStream::connect(path)?), pause: Duration::ZERO })
    }

    /// Processes a key: takes some time, then writes its effect. Returns whether it was accepted.
    pub(super) fn process(
        &mut self,
        key: u64,
        fence: u64,
        shard: u64,
        worker: usize,
    ) -> Outcome<bool> {
        thread::sleep(self.pause);
        self.stream.get_mut().write_all(format!("{key} {fence} {shard} {worker}\n").as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let (answer, pause) = line.trim().split_once(' ').ok_or("the sink has ended")?;
        self.pause = Duration::from_millis(pause.parse()?);
        Ok(answer == "accepted")
    }
}

/// Figures of the effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    pub(super) accepted: u64,
    /// Refused because the key had an effect of a higher fence.
    pub(super) stale: u64,
    /// Accepted for a key that had one.
    pub(super) repeated: u64,
}

/// Checks the effects: every key has one, an accepted one never has a lower fence than an earlier
/// one of its key, none but those is refused, and each was made by the worker that was granted its
/// fence. `holders` has the worker of each shard and fence; grants whose reply was lost are
/// missing, and no effect may belong to them.
///
/// # Errors
///
/// The first effect that breaks a rule.
pub(super) fn check(
    effects: &[Effect],
    keys: u64,
    holders: &BTreeMap<(u64, u64), usize>,
) -> Outcome<Effects> {
    let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut figures = Effects::default();
    for effect in effects {
        let Effect { key, fence, shard, worker, is_accepted, .. } = *effect;
        let before = highest.get(&key).copied();
        if is_accepted != before.is_none_or(|before| fence >= before) {
            return Err(format!("key {key}: fence {fence} after {before:?}: {effect:?}").into());
        }
        if holders.get(&(shard, fence)) != Some(&worker) {
            return Err(format!("key {key}: no grant of shard {shard}: {effect:?}").into());
        }
        if is_accepted {
            highest.insert(key, fence);
        }
        figures.accepted += u64::from(is_accepted);
        figures.stale += u64::from(!is_accepted);
        figures.repeated += u64::from(is_accepted && before.is_some());
    }
    match (0..keys).find(|key| !highest.contains_key(key)) {
        Some(key) => Err(format!("key {key} has no effect").into()),
        None => Ok(figures),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(key: u64, fence: u64, worker: usize, is_accepted: bool) -> Effect {
        Effect { time: 0, key, fence, shard: 0, worker, is_accepted }
    }

    fn checked(effects: &[Effect]) -> Result<Effects, String> {
        let holders = BTreeMap::from([((0, 1), 4), ((0, 2), 5)]);
        check(effects, 2, &holders).map_err(|error| error.to_string())
    }

    #[test]
    fn effects_of_one_fence_after_another_are_counted() {
        let effects = [
            effect(0, 1, 4, true),
            effect(0, 2, 5, true),
            effect(0, 1, 4, false),
            effect(1, 1, 4, true),
        ];
        assert_eq!(checked(&effects), Ok(Effects { accepted: 3, stale: 1, repeated: 1 }));
    }

    #[test]
    fn every_broken_rule_is_seen() {
        let good = [effect(0, 2, 5, true), effect(1, 2, 5, true)];
        let broken = [
            ("fence 1 after Some(2)", effect(0, 1, 4, true)),
            ("fence 2 after Some(2)", effect(0, 2, 5, false)),
            ("no grant of shard 0", effect(0, 2, 4, true)),
            ("no grant of shard 0", effect(0, 3, 4, true)),
        ];
        for (message, effect) in broken {
            let effects: Vec<Effect> = good.into_iter().chain([effect]).collect();
            let error = checked(&effects).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert!(checked(&good[..1]).unwrap_err().contains("key 1 has no effect"));
    }
}
