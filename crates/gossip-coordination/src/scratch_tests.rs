//! Scratch buffers return the last written contents, and nothing older.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_TOKEN_SIZE, ShardSpecRef,
};
use gossip_contracts::identity::ShardId;

use crate::{AcquireScratch, FixedBuf, ShardSnapshotView, ShardStatus};

const PARENT: ShardId = ShardId::from_raw(9);

fn view(scratch: &AcquireScratch) -> ShardSnapshotView<'_> {
    scratch.view(ShardStatus::Active, CursorSemantics::Dispatched, Some(PARENT))
}

#[test]
fn a_buffer_holds_up_to_its_size() {
    let mut buffer = FixedBuf::<4>::new();
    assert!(!buffer.has_data());
    assert_eq!(buffer.read(), b"");
    buffer.write(b"abcd", "it fits");
    assert_eq!(buffer.read(), b"abcd");
    buffer.write(b"x", "it fits");
    assert_eq!((buffer.read(), buffer.has_data()), (b"x".as_slice(), true));
    buffer.reset();
    assert_eq!((buffer.read(), buffer.has_data()), (b"".as_slice(), false));
}

#[test]
#[should_panic(expected = "five into four")]
fn an_oversized_write_panics_with_its_message() {
    let _ = FixedBuf::<4>::from_slice(b"abcde", "five into four");
}

#[test]
fn buffers_are_equal_by_what_they_hold_and_not_by_what_they_held() {
    let mut one = FixedBuf::<4>::from_slice(b"abcd", "it fits");
    one.write(b"ab", "it fits");
    assert_eq!(one, FixedBuf::from_slice(b"ab", "it fits"));
    assert_ne!(one, FixedBuf::from_slice(b"abc", "it fits"));
    assert_eq!(FixedBuf::<4>::default(), FixedBuf::new());
}

#[test]
fn a_buffer_shows_lengths_only() {
    let buffer = FixedBuf::<8>::from_slice(b"abc", "it fits");
    assert_eq!(format!("{buffer:?}"), "FixedBuf<3 of 8 bytes>");
}

#[test]
fn a_view_shows_the_written_state() {
    let mut scratch = AcquireScratch::new();
    scratch.write_spec(b"a", b"m", b"meta");
    scratch.write_cursor(Some(b"c"), Some(b"t"));
    let ids = [ShardId::from_raw(1), ShardId::from_raw(2)];
    scratch.write_spawned_iter(ids);
    let view = view(&scratch);
    assert_eq!(view.spec(), ShardSpecRef::new(b"a", b"m", b"meta"));
    assert_eq!(view.cursor(), CursorUpdate::new(b"c", b"t"));
    assert_eq!((view.spawned(), view.parent()), (ids.as_slice(), Some(PARENT)));
    assert_eq!(view.status(), ShardStatus::Active);
    assert_eq!(view.cursor_semantics(), CursorSemantics::Dispatched);
}

#[test]
fn nothing_of_the_last_shard_shows_through() {
    let mut scratch = AcquireScratch::new();
    scratch.write_spec(b"aaaa", b"zzzz", b"meta");
    scratch.write_cursor(Some(b"cccc"), Some(b"token"));
    scratch.write_spawned_iter([ShardId::from_raw(1)]);
    scratch.write_spec(b"b", b"", b"");
    scratch.write_cursor(None, None);
    scratch.write_spawned_iter([]);
    let view = view(&scratch);
    assert_eq!(view.spec(), ShardSpecRef::new(b"b", b"", b""));
    assert!(view.cursor().is_initial());
    assert_eq!(view.spawned(), []);
}

#[test]
fn a_reset_scratch_is_empty() {
    let mut scratch = AcquireScratch::new();
    scratch.write_spec(b"a", b"m", b"meta");
    scratch.write_cursor(Some(b"c"), Some(b"t"));
    scratch.write_spawned_iter([ShardId::from_raw(1)]);
    scratch.reset();
    let view = view(&scratch);
    assert_eq!(view.spec(), ShardSpecRef::new(b"", b"", b""));
    assert!(view.cursor().is_initial() && view.spawned().is_empty());
}

#[test]
fn the_largest_shard_fits() {
    let key = vec![b'k'; MAX_KEY_SIZE];
    let token = vec![b't'; MAX_TOKEN_SIZE];
    let metadata = vec![b'm'; MAX_METADATA_SIZE];
    let mut scratch = Box::<AcquireScratch>::default();
    scratch.write_spec(&key, &key, &metadata);
    scratch.write_cursor(Some(&key), Some(&token));
    assert_eq!(view(&scratch).spec(), ShardSpecRef::new(&key, &key, &metadata));
    assert_eq!(view(&scratch).cursor().token(), Some(token.as_slice()));
}
