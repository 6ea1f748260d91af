//! Ids and fingerprints, held to the byte layouts of FACTS 1.5 by plain BLAKE3 over bytes that are
//! put together here by hand.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{OpId, RunId, ShardId};
use rstest::rstest;

use crate::handoff::HandoffId;
use crate::protocol::{OfferTerms, ReleaseMode, RunTransitionKind};
use crate::record::ParkReason;
use crate::request::{ShardAction, SplitKey};
use crate::split_execution::*;
use crate::test_fixtures::{at, fence, key, worker};

/// The first eight bytes of a derived key, read little-endian.
fn digest(context: &str, parts: &[&[u8]]) -> u64 {
    let hash = blake3::derive_key(context, &parts.concat());
    u64::from_le_bytes(hash[..8].try_into().unwrap())
}

/// A payload hash: the tag without its length, then the fields.
fn payload(parts: &[&[u8]]) -> u64 {
    digest("gossip/coord/v1/op-payload", parts)
}

const KEY_BYTES: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
/// `[a, m)` with metadata `x`, each part behind its length.
const SPEC: &[u8] = b"\x01\0\0\0a\x01\0\0\0m\x01\0\0\0x";
/// Key `c` and token `tk`, each behind a presence byte and its length.
const CURSOR: &[u8] = b"\x01\x01\0\0\0c\x01\x02\0\0\0tk";
const NO_CURSOR: &[u8] = b"\0\0";

fn spec() -> ShardSpecRef<'static> {
    ShardSpecRef::new(b"a", b"m", b"x")
}

fn cursor() -> CursorUpdate<'static> {
    CursorUpdate::new(b"c", b"tk")
}

#[rstest]
#[case(DerivedShardKind::Child, 0)]
#[case(DerivedShardKind::Residual, 1)]
fn a_derived_id_is_the_hash_of_its_origin_with_bit_63_set(
    #[case] kind: DerivedShardKind,
    #[case] number: u8,
) {
    let (run, parent, op) = (RunId::from_raw(2), ShardId::from_raw(3), OpId::from_raw(4));
    let [run_bytes, parent_bytes, op_bytes] = [2_u64, 3, 4].map(u64::to_le_bytes);
    let hash = digest(
        "gossip/coord/v1/split-id",
        &[&run_bytes, &parent_bytes, &op_bytes, &[number], &5_u32.to_le_bytes()],
    );
    let id = derive_split_shard_id(run, parent, op, kind, 5);
    assert_eq!(id.as_raw(), hash | 1 << 63);
}

#[test]
fn payloads_of_the_seeds_operations_are_tag_then_fields() {
    assert_eq!(hash_checkpoint(cursor()), payload(&[b"checkpoint", CURSOR]));
    assert_eq!(hash_complete(cursor()), payload(&[b"complete", CURSOR]));
    assert_eq!(hash_park(ParkReason::Poisoned), payload(&[b"park", &[2]]));
    assert_eq!(hash_unpark(key(3)), payload(&[b"unpark_shard", &KEY_BYTES]));

    let child = SplitChild::new(spec(), cursor());
    let plan = SplitReplacePlan::try_new([child, child]).unwrap();
    let children = [&2_u32.to_le_bytes(), SPEC, CURSOR, SPEC, CURSOR].concat();
    assert_eq!(hash_split_replace(&plan), payload(&[b"split_replace", &children]));

    let residual = ShardSpecRef::new(b"m", b"z", b"");
    let plan = SplitResidualPlan::try_new(spec(), residual).unwrap();
    let parts = [SPEC, b"\x01\0\0\0m\x01\0\0\0z\0\0\0\0"].concat();
    assert_eq!(hash_split_residual(&plan), payload(&[b"split_residual", &parts]));
}

#[test]
fn payloads_of_added_operations_are_tag_then_fields() {
    assert_eq!(hash_release(ReleaseMode::Clean), payload(&[b"release", &[0]]));
    assert_eq!(hash_release(ReleaseMode::Failed), payload(&[b"release", &[1]]));
    assert_eq!(hash_revoke_lease(key(3), None), payload(&[b"revoke_lease", &KEY_BYTES]));
    let of_fence = [KEY_BYTES.as_slice(), &5_u64.to_le_bytes()].concat();
    assert_eq!(hash_revoke_lease(key(3), Some(fence(5))), payload(&[b"revoke_lease", &of_fence]));

    let [move_bytes, worker_bytes, time_bytes] = [6_u64, 7, 8].map(u64::to_le_bytes);
    let handoff = HandoffId::from_raw(6);
    assert_eq!(hash_withdraw(handoff), payload(&[b"withdraw", &move_bytes]));
    let terms = OfferTerms { handoff, destination: worker(7), deadline: at(8) };
    let fields = [&move_bytes, &worker_bytes, &time_bytes, NO_CURSOR].concat();
    assert_eq!(hash_offer(terms, CursorUpdate::initial()), payload(&[b"offer", &fields]));
}

#[rstest]
#[case(ShardAction::Split(None), &[0, 0])]
#[case(ShardAction::Split(SplitKey::try_new(b"k")), &[0, 1, 1, 0, 0, 0, b'k'])]
#[case(ShardAction::Release, &[1])]
#[case(ShardAction::HandOff(None), &[2, 0])]
#[case(ShardAction::HandOff(Some(worker(7))), &[2, 1, 7, 0, 0, 0, 0, 0, 0, 0])]
#[case(ShardAction::Withdraw, &[3])]
fn requests_differ_by_action_and_argument(#[case] action: ShardAction, #[case] written: &[u8]) {
    let expires = 9_u64.to_le_bytes();
    let expected = payload(&[b"request_action", &KEY_BYTES, written, &expires]);
    assert_eq!(hash_request_action(key(3), &action, at(9)), expected);
}

#[test]
fn registrations_are_hashed_in_the_order_of_ids() {
    let shards = [5, 2].map(|id| InitialShardInput {
        shard_id: ShardId::from_raw(id),
        spec: spec(),
        cursor: cursor(),
    });
    let (two, five) = (2_u64.to_le_bytes(), 5_u64.to_le_bytes());
    let rows = [&2_u32.to_le_bytes(), &two[..], SPEC, CURSOR, &five, SPEC, CURSOR].concat();
    let expected = payload(&[b"register_shards", &rows]);
    assert_eq!(hash_register_shards(&shards), expected);
    assert_eq!(hash_register_shards(&[shards[1], shards[0]]), expected);
}

#[rstest]
#[case(RunTransitionKind::Complete, b"complete_run")]
#[case(RunTransitionKind::Fail, b"fail_run")]
#[case(RunTransitionKind::Cancel, b"cancel_run")]
#[case(RunTransitionKind::Pause, b"pause_run")]
#[case(RunTransitionKind::Resume, b"resume_run")]
fn operations_on_runs_are_their_tags_alone(#[case] kind: RunTransitionKind, #[case] tag: &[u8]) {
    assert_eq!(kind.payload_hash(), payload(&[tag]));
}
