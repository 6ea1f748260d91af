use super::*;

/// Worker `k` was killed, `z` was suspended from 100 to 900 with key 2 begun under fence 1, `d` was
/// drained, and `l` reports that it lost shard `s`. Every lease was observed to last until 500.
const GOOD: &str = "\
    accepted 0 1 s d 10\naccepted 1 1 t k 20\naccepted 3 1 u z 30\naccepted 4 2 s w 40\n\
    accepted 5 3 s l 50\naccepted 2 2 u w 600\naccepted 3 2 u w 610\naccepted 1 2 t w 620\n\
    accepted 5 4 s w 630\nrefused 2 1 u z 910\naccepted 6 1 v z 920\n";

const KEYS: u64 = 7;
const OBSERVED_UNTIL: Time = 500;

fn fates() -> Fates {
    let sleep = Sleep { begun: BTreeSet::from([(2, 1)]), from: 100, until: 900 };
    Fates {
        killed: BTreeSet::from(["k".to_owned()]),
        slept: BTreeMap::from([("z".to_owned(), sleep)]),
        drained: BTreeSet::from(["d".to_owned()]),
        lost: BTreeSet::from([("l".to_owned(), "s".to_owned())]),
    }
}

fn leases() -> Leases {
    let grants = [("s", 1), ("s", 2), ("s", 3), ("t", 1), ("u", 1), ("v", 1), ("x", 1)];
    grants.into_iter().map(|(shard, fence)| ((shard.to_owned(), fence), OBSERVED_UNTIL)).collect()
}

fn checked(journal: &str, leases: &Leases, fates: &Fates) -> Result<Figures, String> {
    let history = History { journal, leases, fates, keys: KEYS, allowed: 1 };
    history.check().map_err(|error| error.to_string())
}

#[test]
fn a_valid_history_is_counted() {
    let figures = checked(GOOD, &leases(), &fates()).unwrap();
    let causes = [(Cause::Killed, 1), (Cause::Slept, 1), (Cause::Expired, 1)];
    let expected = Figures {
        keys: KEYS,
        redone: BTreeMap::from(causes),
        most_of_a_grant: 1,
        expired: 1,
        moved_by_drain: 1,
        refused: 1,
    };
    assert_eq!(figures, expected);
}

/// Each row: a line of the valid journal, its replacement, and the expected error.
#[test]
fn each_altered_journal_is_detected() {
    for (line, altered, fault) in [
        ("accepted 4 2 s w 40\n", "", "key 4 was lost"),
        // Processed twice without a fault, or under one fence, or under a lower one.
        ("accepted 4 2 s w 40\n", "accepted 4 2 s w 40\naccepted 4 5 s w 700\n", "without a cause"),
        ("accepted 4 2 s w 40\n", "accepted 4 2 s w 40\naccepted 4 2 s w 41\n", "under one fence"),
        ("accepted 1 2 t w 620", "accepted 1 0 t w 620", "accepted a lower fence"),
        // A handoff after which a key was processed again, at once or later.
        ("accepted 4 2 s w 40\n", "accepted 0 2 s w 39\naccepted 4 2 s w 40\n", "live lease"),
        ("accepted 4 2 s w 40\n", "accepted 4 2 s w 40\naccepted 0 2 s w 700\n", "without a cause"),
        // A takeover from a killed, suspended or delayed worker before its lease had ended.
        ("accepted 1 2 t w 620", "accepted 1 2 t w 499", "under a live lease"),
        ("accepted 3 2 u w 610", "accepted 3 2 u w 499", "under a live lease"),
        ("accepted 5 4 s w 630", "accepted 5 4 s w 499", "under a live lease"),
        // The worker reports another shard as lost than the one whose key was processed again.
        ("accepted 5 3 s l 50", "accepted 5 1 x l 50", "without a cause"),
        // A key that the resumed worker wrote is processed again.
        (
            "accepted 6 1 v z 920\n",
            "accepted 6 1 v z 920\naccepted 6 2 v w 999\n",
            "without a cause",
        ),
        ("accepted 4 2 s w 40", "accepted 4 1 s w 40", "two owners"),
        // More than one checkpoint interval of one grant.
        (
            "accepted 4 2 s w 40\n",
            "accepted 4 1 t k 40\naccepted 4 2 t w 640\n",
            "2 keys of one grant",
        ),
        // The late write is missing, was accepted, or is of another worker.
        ("refused 2 1 u z 910\n", "", "was not written late"),
        (
            "refused 2 1 u z 910\n",
            "refused 2 1 u z 910\naccepted 3 1 u z 911\n",
            "accepted from a suspended worker",
        ),
        ("refused 2 1 u z 910", "refused 3 1 u z 910", "key 3 of worker z was refused"),
        ("refused 2 1 u z 910", "refused 2 2 u z 910", "key 2 of worker z was refused"),
        ("refused 2 1 u z 910", "refused 2 1 u w 910", "key 2 of worker w was refused"),
        // A refusal under a live lease is a failure, whatever the worker reports.
        (
            "refused 2 1 u z 910\n",
            "refused 2 1 u z 910\nrefused 5 3 s l 499\n",
            "key 5 of worker l",
        ),
        // No worker continued the drained shards.
        ("accepted 0 1 s d 10", "accepted 0 9 x d 10", "no shard of worker d was continued"),
        ("accepted 0 1 s d 10", "accepted 0 1 s d", "invalid line"),
        ("accepted 0 1 s d 10", "written 0 1 s d 10", "invalid line"),
    ] {
        assert!(GOOD.contains(line), "{line}");
        let journal = GOOD.replacen(line, altered, 1);
        let error = checked(&journal, &leases(), &fates()).unwrap_err();
        assert!(error.contains(fault), "{altered:?}: {error}, not {fault}");
    }
}

#[test]
fn a_late_write_after_an_expired_lease_may_be_refused() {
    let journal = format!("{GOOD}refused 5 3 s l 500\n");
    assert_eq!(
        checked(&journal, &leases(), &fates()).unwrap().refused,
        1,
        "only that of the suspended worker"
    );
    let mut lost_nothing = fates();
    lost_nothing.lost.clear();
    let error = checked(&journal, &leases(), &lost_nothing).unwrap_err();
    assert!(error.contains("key 5 of worker l was refused"), "{error}");
}

#[test]
fn no_cause_counts_without_its_evidence() {
    let without = |doctor: &dyn Fn(&mut Fates)| {
        let mut fates = fates();
        doctor(&mut fates);
        checked(GOOD, &leases(), &fates).unwrap_err()
    };
    assert!(without(&|fates| fates.killed.clear()).contains("worker k was redone without a cause"));
    assert!(without(&|fates| fates.lost.clear()).contains("worker l was redone without a cause"));
    assert!(without(&|fates| fates.slept.clear()).contains("key 2 of worker z was refused"));
    let idle = |fates: &mut Fates| fates.slept.values_mut().for_each(|sleep| sleep.begun.clear());
    assert!(without(&idle).contains("key 2 of worker z was refused"));
    let another = |fates: &mut Fates| _ = fates.slept.insert("y".to_owned(), Sleep::default());
    assert!(without(&another).contains("had begun no key"));
    for grant in [("t", 1), ("u", 1), ("s", 3)] {
        let mut leases = leases();
        leases.remove(&(grant.0.to_owned(), grant.1));
        let error = checked(GOOD, &leases, &fates()).unwrap_err();
        assert!(error.contains("was never seen"), "{error}");
    }
}
