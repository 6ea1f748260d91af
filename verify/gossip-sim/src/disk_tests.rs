//! Old versions and undone writes of the simulated disk.

use gossip_contracts::identity::{TenantId, WorkerId};
use gossip_coordination::store::{Answer, Key, KeyRange, Read, Txn};

use super::disk::{Disk, VERSIONS_MAX};

const fn key(worker: u64) -> Key {
    Key::Worker { tenant: TenantId::from_bytes([9; 32]), worker: WorkerId::from_raw(worker) }
}

fn put(disk: &mut Disk, worker: u64, bytes: &[u8]) -> u64 {
    let mut txn = Txn::new();
    txn.put(key(worker), bytes.to_vec());
    disk.apply(&txn, 0)
}

fn delete(disk: &mut Disk, worker: u64) -> u64 {
    let mut txn = Txn::new();
    txn.delete(key(worker));
    disk.apply(&txn, 0)
}

/// Returns the first bytes of all values.
fn all(answers: &[Answer]) -> Vec<u8> {
    let [Answer::Page(page)] = answers else { panic!("one page was asked for") };
    page.iter().map(|(_, value)| value.bytes[0]).collect()
}

fn everything() -> [Read; 1] {
    [Read::Scan { range: KeyRange::all_tenants(), limit: 9 }]
}

#[test]
fn an_older_state_has_deleted_keys_and_lacks_new_ones() {
    let mut disk = Disk::default();
    put(&mut disk, 1, b"a");
    put(&mut disk, 2, b"b");
    delete(&mut disk, 1);
    put(&mut disk, 2, b"c");
    put(&mut disk, 3, b"d");
    let reads = everything();
    let states: Vec<Vec<u8>> =
        disk.past_of(&reads).iter().map(|write| all(&disk.read_before(write, &reads, 9))).collect();
    assert_eq!(states, [&b"c"[..], b"b", b"ab", b"a", b""]);
    assert_eq!(all(&disk.read(&reads, 9)), b"cd", "the current state is unchanged");
}

#[test]
fn no_more_versions_of_a_value_are_shown_than_are_kept() {
    let mut disk = Disk::default();
    for byte in b'a'..=b'h' {
        put(&mut disk, 1, &[byte]);
    }
    let read = [Read::Get(key(1))];
    let writes = disk.past_of(&read);
    let shown: Vec<u8> = writes
        .iter()
        .map(|write| disk.replaced_by(write).expect("it was there").bytes[0])
        .collect();
    assert_eq!(shown, b"gfed");
    assert_eq!(shown.len(), VERSIONS_MAX);
    assert!(disk.past_of(&[Read::Get(key(2))]).is_empty());
}

#[test]
fn lost_commits_undo_insertions_and_deletions() {
    let mut disk = Disk::default();
    put(&mut disk, 1, b"a");
    let kept = put(&mut disk, 2, b"b");
    delete(&mut disk, 1);
    let mut txn = Txn::new();
    txn.put(key(2), b"c".to_vec());
    txn.put(key(3), b"d".to_vec());
    disk.apply(&txn, 0);
    assert_eq!(disk.lose_last_commits(2), kept + 1);
    assert_eq!(all(&disk.read(&everything(), 9)), b"ab");
    assert_eq!(put(&mut disk, 4, b"e"), kept + 1, "the revisions are assigned again");
}

#[test]
fn one_write_of_the_last_commit_is_lost_and_no_earlier_one() {
    let mut disk = Disk::default();
    put(&mut disk, 1, b"a");
    delete(&mut disk, 1);
    assert!(disk.lose_last_write(&key(1)), "a deletion");
    assert_eq!(all(&disk.read(&everything(), 9)), b"a");
    put(&mut disk, 2, b"b");
    assert!(!disk.lose_last_write(&key(1)), "it was not in the last commit");
    assert!(disk.lose_last_write(&key(2)), "a new key");
    assert_eq!(all(&disk.read(&everything(), 9)), b"a");
}

/// A version that is overwritten while it is torn, and then repaired, may be read again.
#[test]
fn a_torn_version_is_repaired_after_it_was_overwritten() {
    let mut disk = Disk::default();
    let torn = put(&mut disk, 1, b"a");
    disk.overwrite(&key(1), |bytes| *bytes = b"x".to_vec());
    put(&mut disk, 1, b"b");
    disk.repair_version(&key(1), torn, b"a".to_vec());
    assert_eq!(all(&disk.read(&everything(), 9)), b"b");
    disk.lose_last_commits(1);
    assert_eq!(all(&disk.read(&everything(), 9)), b"a");
}
