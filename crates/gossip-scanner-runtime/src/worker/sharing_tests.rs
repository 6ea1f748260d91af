use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::sharing::Sharing;
use crate::test_support::at;

/// Longer than a claim takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A search that waits for the store holds the lock of the state. A claim is recorded before its
/// lease is in a slot, so the lease would not be renewed meanwhile.
#[test]
fn claim_is_recorded_while_a_search_uses_the_store() {
    let sharing = Sharing::new(7, at(1));
    let search = sharing.lock();
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let sharing = &sharing;
        scope.spawn(move || {
            sharing.claimed(at(2));
            done.send(()).unwrap();
        });
        let answer = is_done.recv_timeout(PATIENCE);
        // Before the assertion, so that a failure does not hang.
        drop(search);
        assert!(answer.is_ok(), "the claim waits for the search");
    });
}
