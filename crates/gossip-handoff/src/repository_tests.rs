//! A repository compares and swaps, and finds what a process has to go on with.

use gossip_contracts::identity::LogicalTime;

use super::*;

fn machine(id: &str, from: &str, to: &str) -> Machine {
    let id = RecordId::new(id).unwrap();
    Machine::new(id, "subject", from, to, LogicalTime::from_raw(1)).unwrap()
}

#[test]
fn of_two_recoverers_one_drives_the_record() {
    let mut one = MemoryRepository::new();
    let mut other = one.clone();
    let mut first = machine("m", "a", "b");
    one.save(&first.record(), None).unwrap();
    let found = other.get(&first.record().id).unwrap();
    let mut second = Machine::from_record(found.record.clone()).unwrap();

    first.serialize(b"by the first").unwrap();
    second.rollback("by the second").unwrap();
    let newer = one.save(&first.record(), Some(found.version)).unwrap();
    let lost = other.save(&second.record(), Some(found.version));
    assert_eq!(lost, Err(RepositoryError::VersionConflict));
    let stored = Stored { record: first.record(), version: newer };
    assert_eq!(other.get(&first.record().id), Ok(stored));
}

#[test]
fn a_new_record_must_be_new() {
    let mut records = MemoryRepository::new();
    let record = machine("m", "a", "b").record();
    let version = records.save(&record, None).unwrap();
    assert_eq!(records.save(&record, None), Err(RepositoryError::VersionConflict));
    let other = machine("n", "a", "b").record();
    assert_eq!(records.save(&other, Some(version)), Err(RepositoryError::VersionConflict));
    assert_eq!(records.get(&other.id), Err(RepositoryError::RecordNotFound));
}

#[test]
fn a_process_finds_what_it_gives_and_what_it_gets() {
    let mut records = MemoryRepository::new();
    let mut over = machine("over", "a", "b");
    over.rollback("enough").unwrap();
    for machine in [&machine("gives", "a", "b"), &machine("gets", "c", "a"), &over] {
        records.save(&machine.record(), None).unwrap();
    }
    records.save(&machine("foreign", "c", "b").record(), None).unwrap();
    let found = records.in_progress("a").unwrap();
    let ids: Vec<_> = found.iter().map(|stored| stored.record.id.as_str().to_owned()).collect();
    assert_eq!(ids, ["gets", "gives"]);
    assert_eq!(records.in_progress("nobody"), Ok(Vec::new()));
}

#[test]
fn what_no_machine_makes_is_not_stored() {
    let mut records = MemoryRepository::new();
    let mut record = machine("m", "a", "b").record();
    record.to = record.from.clone();
    let refused = records.save(&record, None);
    assert_eq!(refused, Err(RepositoryError::Invalid(InvalidRecord::SameOwner)));
    assert_eq!(records.get(&record.id), Err(RepositoryError::RecordNotFound));
}
