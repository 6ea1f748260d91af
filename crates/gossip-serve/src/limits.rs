//! Limits on requests per client address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests per second of one address, and how many may come at once: two hundred browsers that
/// come back after a restart send about a thousand.
const PER_SECOND: u32 = 200;
const BURST: u32 = 4_000;

/// Wrong tokens per second of one address, and at once.
const WRONG_PER_SECOND: u32 = 1;
const WRONG_BURST: u32 = 20;

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1_024;

/// The theoretical arrival times of each address (generic cell rate algorithm).
#[derive(Debug, Default)]
pub(crate) struct Limits {
    requests: Mutex<BTreeMap<IpAddr, Instant>>,
    wrong: Mutex<BTreeMap<IpAddr, Instant>>,
}

impl Limits {
    /// Counts a request; returns whether it is within the limit.
    pub(crate) fn admit(&self, peer: IpAddr) -> bool {
        count(&self.requests, peer, Instant::now(), (PER_SECOND, BURST))
    }

    /// Counts a try to sign in; returns whether it is within the limit.
    pub(crate) fn admit_sign_in(&self, peer: IpAddr) -> bool {
        count(&self.wrong, peer, Instant::now(), (WRONG_PER_SECOND, WRONG_BURST))
    }
}

fn count(
    seen: &Mutex<BTreeMap<IpAddr, Instant>>,
    peer: IpAddr,
    now: Instant,
    (rate, burst): (u32, u32),
) -> bool {
    let interval = Duration::from_secs(1) / rate;
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() >= ADDRESSES_MAX {
        seen.retain(|_, next| *next > now);
    }
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
