//! Releases and handoffs: the fence decides which worker owns a shard at every instant.

use gossip_contracts::coordination::CursorUpdate;
use gossip_coordination::protocol::{OFFER_LEASES_MAX, OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcceptError, CheckpointError, CoordinationBackend, HandoffId, IdempotentOutcome, OfferError,
    OfferNotice, RunManagement, WithdrawError,
};

use super::world::{LEASE, RUN, World, at, handoff, key, op, shard, word, worker};
use super::{ConformanceTarget, refused, topic};

topic!("handoff":
    a_release_frees_the_shard_at_once_and_keeps_its_progress,
    an_accepted_offer_moves_the_shard_in_one_step,
    an_offer_may_bring_the_final_cursor,
    the_final_cursor_obeys_the_rules_of_cursors,
    an_offered_shard_is_frozen,
    a_frozen_owner_may_renew_up_to_one_lease_behind_the_offer,
    a_renewal_returns_the_open_offer,
    only_the_named_destination_may_accept,
    an_offer_is_accepted_by_its_own_id,
    an_offer_expires_for_the_destination_only,
    an_offer_names_another_worker,
    an_offer_ends_ahead_and_within_four_leases,
    the_same_offer_again_is_the_same_offer,
    another_offer_must_wait,
    a_withdrawn_offer_cannot_be_accepted_and_the_source_continues,
    a_withdrawn_shard_can_be_offered_again,
    an_offer_that_comes_after_its_withdrawal_is_shut_out,
    a_shard_records_the_handoff_that_raised_its_fence,
    a_withdrawal_without_an_offer_succeeds,
    a_withdrawal_of_another_offer_is_refused,
    a_withdrawal_after_the_accept_comes_too_late,
    a_takeover_ends_the_offer,
    a_revocation_ends_the_offer,
    an_accepted_move_can_be_repeated_only_by_a_new_offer,
    a_run_that_is_over_moves_nothing,
    a_paused_run_refuses_accept_and_allows_withdraw,
    a_finished_shard_cannot_be_accepted,
);

/// The next owner need not wait for the deadline and repeats no work.
pub fn a_release_frees_the_shard_at_once_and_keeps_its_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let released = world.release(12, &held.lease, ReleaseMode::Clean, 2);
    assert_eq!(released, Ok(IdempotentOutcome::Executed(())));
    assert!(!world.row(12, shard(0)).leased);
    let next = world.acquire(12, key(0), 2);
    assert_eq!(next.last_key.as_deref(), Some(b"c".as_slice()));
}

/// Before the accept the source owns the shard, after it the destination.
pub fn an_accepted_offer_moves_the_shard_in_one_step<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.checkpoint(11, &source.lease, b"c", 1).expect("live");
    world.offer(12, &source.lease, (1, 2, 50), 2).expect("live");
    world.renew(13, &source.lease).expect("still the owner");
    let moved = world.accept(14, key(0), 2, 1).expect("offered, although the lease is live");
    assert_eq!(moved.fence(), source.fence() + 1);
    assert_eq!((moved.deadline(), moved.lease.owner()), (14 + LEASE, worker(2)));
    assert_eq!(moved.last_key.as_deref(), Some(b"c".as_slice()), "no key is processed twice");
    world.assert_all_refused(15, &source.lease, "StaleFence");
    world.checkpoint(15, &moved.lease, b"d", 3).expect("the destination owns it, unfrozen");
}

/// An offer and the last checkpoint are one commit.
pub fn an_offer_may_bring_the_final_cursor<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    let cursor = CursorUpdate::new(b"e", b"page 5");
    let terms = OfferTerms { handoff: handoff(1), destination: worker(2), deadline: at(50) };
    let offered = world.backend.offer(at(11), world.tenant, &source.lease, terms, cursor, op(1));
    offered.expect("live");
    let moved = world.accept(12, key(0), 2, 1).expect("offered");
    assert_eq!(moved.last_key.as_deref(), Some(b"e".as_slice()));
    assert_eq!(moved.token.as_deref(), Some(b"page 5".as_slice()));
}

/// The final cursor obeys the same rules; a refused offer does not freeze the shard.
pub fn the_final_cursor_obeys_the_rules_of_cursors<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.checkpoint(11, &source.lease, b"e", 1).expect("live");
    let terms = OfferTerms { handoff: handoff(1), destination: worker(2), deadline: at(50) };
    let mut offer = |last_key: &[u8]| {
        let cursor = CursorUpdate::with_last_key(last_key);
        world.backend.offer(at(12), world.tenant, &source.lease, terms, cursor, op(2))
    };
    refused!(offer(b"b"), OfferError::CursorRegression { .. });
    refused!(offer(b"q"), OfferError::CursorOutOfBounds(_));
    world.checkpoint(13, &source.lease, b"f", 3).expect("not frozen");
}

/// Changes of the shard are refused until a withdrawal, also after the offer's deadline.
pub fn an_offered_shard_is_frozen<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    for now in [12, 60] {
        for (index, operation) in super::world::LEASE_GATED.iter().enumerate() {
            let expected = match *operation {
                "renew" => "RenewResult",
                // It names another offer and is refused for that.
                "withdraw" => "NoOffer",
                _ => "Offered",
            };
            assert_eq!(world.call_each(index, now, &source.lease), expected, "{operation}");
        }
    }
    let refusal = world.checkpoint(61, &source.lease, b"c", 2);
    refused!(refusal, CheckpointError::Offered { handoff: id, deadline }
        if id == handoff(1) && deadline == at(50));
}

/// An owner that never withdraws cannot keep a frozen shard.
pub fn a_frozen_owner_may_renew_up_to_one_lease_behind_the_offer<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    let renewed = |world: &mut World<'_, T>, now| {
        world.renew(now, &source.lease).map(|renewed| renewed.new_deadline.as_raw())
    };
    assert_eq!(renewed(&mut world, 20), Ok(20 + LEASE));
    assert_eq!(renewed(&mut world, 100), Ok(50 + LEASE), "capped");
    assert_eq!(renewed(&mut world, 149), Ok(50 + LEASE));
    assert!(renewed(&mut world, 150).is_err(), "and then the lease expires");
    assert_eq!(world.acquire(150, key(0), 3).fence(), source.fence() + 1);
}

/// A restarted owner can detect its offer and withdraw it.
pub fn a_renewal_returns_the_open_offer<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    assert_eq!(world.renew(11, &source.lease).expect("live").offer, None);
    world.offer(12, &source.lease, (1, 2, 50), 1).expect("live");
    let notice = OfferNotice { handoff: handoff(1), deadline: at(50) };
    assert_eq!(world.renew(13, &source.lease).expect("live").offer, Some(notice));
    assert_eq!(world.renew(60, &source.lease).expect("live").offer, Some(notice), "expired too");
    world.withdraw(61, &source.lease, 1, 2).expect("live");
    assert_eq!(world.renew(62, &source.lease).expect("live").offer, None);
}

/// An offer names one worker.
pub fn only_the_named_destination_may_accept<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    for other in [1, 3] {
        refused!(world.accept(12, key(0), other, 1), AcceptError::NotDestination);
    }
    // The destination is checked before the deadline.
    refused!(world.accept(60, key(0), 3, 1), AcceptError::NotDestination);
    world.accept(13, key(0), 2, 1).expect("the destination may");
}

/// Without an offer, and with another id, there is nothing to accept.
pub fn an_offer_is_accepted_by_its_own_id<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    refused!(world.accept(5, key(0), 2, 1), AcceptError::NoOffer);
    let source = world.acquire(10, key(0), 1);
    refused!(world.accept(11, key(0), 2, 1), AcceptError::NoOffer);
    world.offer(12, &source.lease, (1, 2, 50), 1).expect("live");
    refused!(world.accept(13, key(0), 2, 9), AcceptError::NoOffer);
    refused!(world.accept(13, key(1), 2, 1), AcceptError::NoOffer);
}

/// At its deadline the offer expires for the destination; the source still has to withdraw.
pub fn an_offer_expires_for_the_destination_only<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    let late = world.accept(50, key(0), 2, 1);
    refused!(late, AcceptError::OfferExpired { deadline, now }
        if deadline == at(50) && now == at(50));
    let frozen = world.checkpoint(51, &source.lease, b"c", 2);
    refused!(frozen, CheckpointError::Offered { .. });
    world.withdraw(52, &source.lease, 1, 3).expect("live");
    world.checkpoint(53, &source.lease, b"c", 2).expect("no longer frozen");

    world.offer(54, &source.lease, (2, 2, 90), 4).expect("live");
    world.accept(89, key(0), 2, 2).expect("one tick before");
}

/// A shard cannot be offered to its owner.
pub fn an_offer_names_another_worker<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    refused!(world.offer(11, &source.lease, (1, 1, 50), 1), OfferError::InvalidDestination);
    // The destination is checked before the deadline.
    refused!(world.offer(11, &source.lease, (1, 1, 11), 1), OfferError::InvalidDestination);
    world.checkpoint(12, &source.lease, b"c", 2).expect("not frozen");
}

/// Checks both ends of the allowed window.
pub fn an_offer_ends_ahead_and_within_four_leases<T: ConformanceTarget>(target: &T) {
    let latest = 11 + OFFER_LEASES_MAX * LEASE;
    for deadline in [0, 10, 11, latest + 1] {
        let mut world = World::two_shards(target);
        let source = world.acquire(10, key(0), 1);
        let refusal = world.offer(11, &source.lease, (1, 2, deadline), 1);
        refused!(refusal, OfferError::InvalidOfferDeadline { latest: reported, .. }
            if reported == at(latest));
        world.checkpoint(12, &source.lease, b"c", 2).expect("not frozen");
    }
    for deadline in [12, latest] {
        let mut world = World::two_shards(target);
        let source = world.acquire(10, key(0), 1);
        world.offer(11, &source.lease, (1, 2, deadline), 1).expect("within the window");
    }
}

/// A restarted source repeats its offer under a new operation id, and it is replayed.
pub fn the_same_offer_again_is_the_same_offer<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    let offered = world.offer(11, &source.lease, (1, 2, 50), 1);
    assert_eq!(offered, Ok(IdempotentOutcome::Executed(())));
    for id in [1, 2] {
        let again = world.offer(12, &source.lease, (1, 2, 50), id);
        assert_eq!(again, Ok(IdempotentOutcome::Replayed(())), "operation {id}");
    }
}

/// At most one offer is open, whatever differs.
pub fn another_offer_must_wait<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    for terms in [(1, 3, 50), (1, 2, 51), (2, 2, 50), (2, 1, 0)] {
        let refusal = world.offer(12, &source.lease, terms, 2);
        refused!(refusal, OfferError::Offered { handoff: id, deadline }
            if id == handoff(1) && deadline == at(50));
    }
}

/// The source still owns the shard and can continue.
pub fn a_withdrawn_offer_cannot_be_accepted_and_the_source_continues<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    world.withdraw(12, &source.lease, 1, 2).expect("live");
    refused!(world.accept(13, key(0), 2, 1), AcceptError::NoOffer);
    world.checkpoint(14, &source.lease, b"c", 3).expect("no longer frozen");
    let again = world.withdraw(15, &source.lease, 1, 2).expect("known");
    assert!(again.is_replay());
}

/// To another worker, under another id.
pub fn a_withdrawn_shard_can_be_offered_again<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    world.withdraw(12, &source.lease, 1, 2).expect("live");
    world.offer(13, &source.lease, (2, 3, 60), 3).expect("live");
    refused!(world.accept(14, key(0), 2, 1), AcceptError::NoOffer);
    assert_eq!(world.accept(14, key(0), 3, 2).expect("offered").fence(), source.fence() + 1);
}

/// The source has continued: an accept of the late offer would repeat its later work.
pub fn an_offer_that_comes_after_its_withdrawal_is_shut_out<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.withdraw(11, &source.lease, 1, 1).expect("live");
    let late = world.offer(12, &source.lease, (1, 2, 50), 2);
    refused!(late, OfferError::Withdrawn { handoff } if handoff.as_raw() == 1);
    world.checkpoint(13, &source.lease, b"c", 3).expect("not frozen");
}

/// Recovery of a handoff reads which handoff raised the shard's fence last.
pub fn a_shard_records_the_handoff_that_raised_its_fence<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    assert_eq!(world.row(10, key(0).shard()).last_handoff, None);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    world.accept(12, key(0), 2, 1).expect("offered");
    let moved = world.row(12, key(0).shard());
    assert_eq!(moved.last_handoff, Some(HandoffId::from_raw(1)));
    assert_eq!(moved.fence_epoch.as_raw(), source.fence() + 1);
    world.acquire(500, key(0), 3);
    assert_eq!(world.row(500, key(0).shard()).last_handoff, None, "an acquire is not a handoff");
}

/// A source withdraws an offer of which it does not know whether it was committed.
pub fn a_withdrawal_without_an_offer_succeeds<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    let done = world.withdraw(11, &source.lease, 1, 1);
    assert_eq!(done, Ok(IdempotentOutcome::Executed(())));
    assert!(world.withdraw(12, &source.lease, 1, 1).expect("known").is_replay());
    let conflict = world.withdraw(12, &source.lease, 2, 1);
    refused!(conflict, WithdrawError::OpIdConflict { .. });
}

/// The open offer is another one.
pub fn a_withdrawal_of_another_offer_is_refused<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    refused!(world.withdraw(12, &source.lease, 9, 2), WithdrawError::NoOffer);
    world.accept(13, key(0), 2, 1).expect("the offer was open");
}

/// The accept was the commit point.
pub fn a_withdrawal_after_the_accept_comes_too_late<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    world.accept(12, key(0), 2, 1).expect("offered");
    refused!(world.withdraw(13, &source.lease, 1, 2), WithdrawError::StaleFence { .. });
}

/// The source's lease expired while its offer was open: the next owner acquires it unfrozen.
pub fn a_takeover_ends_the_offer<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 300), 1).expect("live");
    let taken = world.acquire(110, key(0), 3);
    refused!(world.accept(111, key(0), 2, 1), AcceptError::NoOffer);
    world.checkpoint(112, &taken.lease, b"c", 2).expect("not frozen");
    refused!(world.withdraw(113, &source.lease, 1, 3), WithdrawError::StaleFence { .. });
}

/// Any new fence ends an offer.
pub fn a_revocation_ends_the_offer<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    world.revoke(12, key(0), 2).expect("leased");
    refused!(world.accept(13, key(0), 2, 1), AcceptError::NoOffer);
}

/// A second accept is refused; a handoff back needs a new offer.
pub fn an_accepted_move_can_be_repeated_only_by_a_new_offer<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    let moved = world.accept(12, key(0), 2, 1).expect("offered");
    refused!(world.accept(13, key(0), 2, 1), AcceptError::NoOffer);
    world.offer(14, &moved.lease, (2, 1, 60), 2).expect("live");
    let back = world.accept(15, key(0), 1, 2).expect("offered");
    assert_eq!(back.fence(), source.fence() + 2);
}

/// Offer and accept check the run; withdraw and release are always allowed.
pub fn a_run_that_is_over_moves_nothing<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let offered = world.acquire(10, key(0), 1);
    let other = world.acquire(10, key(1), 1);
    world.offer(11, &offered.lease, (1, 2, 50), 1).expect("live");
    world.backend.cancel_run(at(12), world.tenant, RUN, op(2)).expect("active");
    refused!(world.accept(13, key(0), 2, 1), AcceptError::RunTerminal { .. });
    refused!(world.offer(13, &other.lease, (2, 2, 50), 3), OfferError::RunTerminal { .. });
    world.withdraw(14, &offered.lease, 1, 4).expect("live");
    world.release(15, &offered.lease, ReleaseMode::Clean, 5).expect("live");
}

/// No shard of a paused run is granted; owners may release theirs.
pub fn a_paused_run_refuses_accept_and_allows_withdraw<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let source = world.acquire(10, key(0), 1);
    world.offer(11, &source.lease, (1, 2, 50), 1).expect("live");
    world.backend.pause_run(at(12), world.tenant, RUN, op(2)).expect("active");
    refused!(world.accept(13, key(0), 2, 1), AcceptError::RunPaused);
    assert!(world.renew(14, &source.lease).expect("live").run_paused);
    world.withdraw(15, &source.lease, 1, 3).expect("live");
    world.release(16, &source.lease, ReleaseMode::Clean, 4).expect("live");
}

/// The status is checked before the offer.
pub fn a_finished_shard_cannot_be_accepted<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    let refusal = world.accept(11, key(0), 2, 1).expect_err("it is done");
    assert_eq!(word(&refusal), "ShardTerminal");
}
