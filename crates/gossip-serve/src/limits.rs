//! Limits on requests per client address.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::access::ServeLimits;

/// Wrong tokens per second of one address, and at once.
const WRONG_PER_SECOND: u32 = 1;
const WRONG_BURST: u32 = 20;

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1_024;

/// Wrong tokens that are remembered. A browser that repeats the one of an earlier start guesses
/// nothing, and must not lock others out of its address.
const WRONG_MAX: usize = 1_024;

/// The theoretical arrival times of each address (generic cell rate algorithm).
#[derive(Debug)]
pub(crate) struct Limits {
    /// Requests per second, and at once.
    rate: (u32, u32),
    requests: Mutex<BTreeMap<IpAddr, Instant>>,
    wrong: Mutex<BTreeMap<IpAddr, Instant>>,
    /// Hashes of wrong tokens and cookies, the oldest first.
    known: Mutex<VecDeque<blake3::Hash>>,
}

impl Limits {
    pub(crate) fn new(limits: &ServeLimits) -> Self {
        Self {
            rate: (limits.requests_per_second, limits.requests_at_once),
            requests: Mutex::default(),
            wrong: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Counts a request; returns whether it is within the limit.
    pub(crate) fn admit(&self, peer: IpAddr) -> bool {
        count(&self.requests, peer, Instant::now(), self.rate)
    }

    /// Looks `given` up with `look`, unless its address has sent too many wrong ones: then the
    /// right one is refused too, or the answer would be that of another guess. Right ones are not
    /// counted.
    pub(crate) fn guess<T>(
        &self,
        peer: IpAddr,
        given: &[u8],
        look: impl FnOnce() -> Option<T>,
    ) -> Guess<T> {
        let (now, rate) = (Instant::now(), (WRONG_PER_SECOND, WRONG_BURST));
        let is_within = has_room(&self.wrong, peer, now, rate);
        // Checked before the look: beyond the limit even the right token gets no other answer than
        // a wrong one.
        if is_within && let Some(found) = look() {
            return Guess::Right(found);
        }
        let hash = blake3::hash(given);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // The same wrong token again is no further guess, as from a browser with an old cookie.
        if known.contains(&hash) {
            return Guess::Wrong;
        }
        if !is_within {
            return Guess::TooMany;
        }
        known.push_back(hash);
        if known.len() > WRONG_MAX {
            known.pop_front();
        }
        drop(known);
        if count(&self.wrong, peer, now, rate) { Guess::Wrong } else { Guess::TooMany }
    }
}

/// What became of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guess<T> {
    Right(T),
    Wrong,
    /// It was not looked up.
    TooMany,
}

/// Returns whether the next call of [`count`] would admit, without counting.
fn has_room(
    seen: &Mutex<BTreeMap<IpAddr, Instant>>,
    peer: IpAddr,
    now: Instant,
    (rate, burst): (u32, u32),
) -> bool {
    let interval = Duration::from_secs(1) / rate.max(1);
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.get(&peer).is_none_or(|next| next.saturating_duration_since(now) <= interval * burst)
}

fn count(
    seen: &Mutex<BTreeMap<IpAddr, Instant>>,
    peer: IpAddr,
    now: Instant,
    (rate, burst): (u32, u32),
) -> bool {
    let interval = Duration::from_secs(1) / rate.max(1);
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() >= ADDRESSES_MAX {
        seen.retain(|_, next| *next > now);
    }
    // Full of addresses that all sent something a moment ago; a new one must not push out their
    // counts.
    if seen.len() >= ADDRESSES_MAX && !seen.contains_key(&peer) {
        return false;
    }
    let next = seen.get(&peer).map_or(now, |next| (*next).max(now));
    if next - now > interval * burst {
        return false;
    }
    seen.insert(peer, next + interval);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_beyond_its_burst_waits_and_others_do_not() {
        let seen = Mutex::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let now = Instant::now();
        let admitted = (0..100).filter(|_| count(&seen, one, now, (10, 20))).count();
        assert_eq!(admitted, 21);
        assert!(count(&seen, other, now, (10, 20)));
        assert!(count(&seen, one, now + Duration::from_secs(1), (10, 20)));
    }

    #[test]
    fn guesses_are_counted_and_right_or_repeated_tokens_are_not() {
        let (limits, peer) = (Limits::new(&ServeLimits::default()), IpAddr::from([10, 0, 0, 1]));
        let right = || limits.guess(peer, b"right", || Some(1));
        let wrong = |text: String| limits.guess(peer, text.as_bytes(), || None::<u8>);
        for _ in 0..10 * WRONG_BURST {
            assert_eq!(right(), Guess::Right(1));
            assert_eq!(wrong("stale".to_owned()), Guess::Wrong);
        }
        let refused = (0..2 * WRONG_BURST).filter(|it| wrong(it.to_string()) == Guess::TooMany);
        assert!(refused.count() as u32 >= WRONG_BURST - 2);
        // Otherwise its answer would distinguish the right one from the wrong ones.
        assert_eq!(right(), Guess::TooMany);
        assert_eq!(wrong("stale".to_owned()), Guess::Wrong);
        let other = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(limits.guess(other, b"right", || Some(1)), Guess::Right(1));
        for number in 0..2 * WRONG_MAX as u32 {
            let peer = IpAddr::from(number.to_be_bytes());
            limits.guess(peer, &number.to_be_bytes(), || None::<u8>);
        }
        assert_eq!(limits.known.lock().unwrap().len(), WRONG_MAX);
    }

    #[test]
    fn number_of_addresses_is_bounded() {
        let (seen, now) = (Mutex::default(), Instant::now());
        for address in 0..2 * ADDRESSES_MAX as u32 {
            count(&seen, IpAddr::from(address.to_be_bytes()), now, (1, 1));
        }
        assert_eq!(seen.lock().unwrap().len(), ADDRESSES_MAX);
        let later = now + Duration::from_secs(2);
        assert!(count(&seen, IpAddr::from([9, 9, 9, 9]), later, (1, 1)));
    }
}
