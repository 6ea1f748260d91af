//! Transitions of the machine: in order, with rollback up to Ack, and none from a terminal phase.

use gossip_contracts::identity::LogicalTime;
use rstest::rstest;

use super::*;

type Step = fn(&mut Machine) -> Result<(), HandoffError>;

/// Every transition with its phases before and after.
const STEPS: [(Phase, Phase, Step); 5] = [
    (Phase::Lock, Phase::Serialize, |machine| machine.serialize(b"state")),
    (Phase::Serialize, Phase::Transfer, Machine::transfer),
    (Phase::Transfer, Phase::Ack, Machine::ack),
    (Phase::Ack, Phase::Unlock, Machine::unlock),
    (Phase::Unlock, Phase::Complete, Machine::complete),
];

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

fn fresh() -> Machine {
    Machine::new(RecordId::new("id").unwrap(), "subject", "source", "destination", at(10)).unwrap()
}

/// Returns a machine in `phase`.
fn in_phase(phase: Phase) -> Machine {
    let mut machine = fresh();
    if phase == Phase::RolledBack {
        machine.rollback("because").unwrap();
        return machine;
    }
    for (_, to, step) in STEPS {
        if machine.state() == phase {
            break;
        }
        step(&mut machine).unwrap();
        assert_eq!(machine.state(), to);
    }
    assert_eq!(machine.state(), phase);
    machine
}

#[test]
fn a_transition_succeeds_from_its_own_phase_only() {
    for phase in Phase::ALL {
        for (from, to, step) in STEPS {
            let mut machine = in_phase(phase);
            let before = machine.record();
            let result = step(&mut machine);
            if phase.is_terminal() {
                assert_eq!(result, Err(HandoffError::Terminal { state: phase }));
            } else if phase == from {
                assert_eq!((result, machine.state()), (Ok(()), to));
                continue;
            } else {
                let expected = HandoffError::InvalidPhaseTransition { from: phase, to };
                assert_eq!(result, Err(expected));
            }
            assert_eq!(machine.record(), before, "a refusal changes nothing");
        }
    }
}

#[rstest]
#[case(Phase::Lock, true)]
#[case(Phase::Serialize, true)]
#[case(Phase::Transfer, true)]
#[case(Phase::Ack, true)]
#[case(Phase::Unlock, false)]
#[case(Phase::Complete, false)]
#[case(Phase::RolledBack, false)]
fn rollback_succeeds_up_to_ack(#[case] phase: Phase, #[case] back: bool) {
    let mut machine = in_phase(phase);
    let before = machine.record();
    let result = machine.rollback("the destination is full");
    if back {
        assert_eq!((result, machine.state()), (Ok(()), Phase::RolledBack));
        assert_eq!(machine.record().error, "the destination is full");
        assert_eq!(machine.record().snapshot, before.snapshot, "kept for inspection");
        assert!(machine.is_terminal());
        return;
    }
    let expected = match phase.is_terminal() {
        true => HandoffError::Terminal { state: phase },
        false => HandoffError::InvalidPhaseTransition { from: phase, to: Phase::RolledBack },
    };
    assert_eq!((result, machine.record()), (Err(expected), before));
}

#[test]
fn a_snapshot_is_kept_until_complete() {
    for phase in [Phase::Serialize, Phase::Transfer, Phase::Ack, Phase::Unlock] {
        assert_eq!(in_phase(phase).record().snapshot, b"state", "{phase}");
    }
    assert!(in_phase(Phase::Complete).record().snapshot.is_empty());
}

#[test]
fn an_empty_snapshot_is_accepted_and_an_oversized_one_rejected() {
    let mut machine = fresh();
    let len = SNAPSHOT_LEN_MAX + 1;
    let refused = machine.serialize(vec![7; len]);
    assert_eq!(refused, Err(InvalidRecord::SnapshotTooLarge { len }.into()));
    assert_eq!(machine.record(), fresh().record());
    machine.serialize(vec![7; SNAPSHOT_LEN_MAX]).unwrap();
    let mut machine = fresh();
    machine.serialize([]).unwrap();
    assert_eq!(machine.state(), Phase::Serialize);
}

#[test]
fn every_transition_is_stamped_and_timestamps_never_decrease() {
    let mut machine = fresh();
    let mut readings = [20, 15, 30].into_iter().map(at);
    machine.set_clock(move || readings.next().unwrap());
    let mut stamps = Vec::new();
    for (_, _, step) in &STEPS[..3] {
        step(&mut machine).unwrap();
        stamps.push(machine.record().last_transition);
    }
    assert_eq!(stamps, [at(20), at(20), at(30)]);
    assert_eq!(machine.record().started_at, at(10));
    assert_eq!(in_phase(Phase::Ack).record().last_transition, at(10), "the clock does not move");
}

#[test]
fn a_crash_between_any_two_steps_loses_nothing() {
    let mut record = fresh().record();
    for (_, to, step) in STEPS {
        let stored = Record::from_bytes(&record.to_bytes()).unwrap();
        let mut machine = Machine::from_record(stored).unwrap();
        step(&mut machine).unwrap();
        record = machine.record();
        assert_eq!(record.state, to);
    }
}

#[test]
fn a_handoff_requires_names_and_two_owners() {
    let id = || RecordId::new("id").unwrap();
    let refused = |subject, from, to| Machine::new(id(), subject, from, to, at(1)).unwrap_err();
    let name = |field| InvalidRecord::NameLength { field, len: 0 };
    assert_eq!(RecordId::new(""), Err(name("id")));
    assert_eq!(refused("", "a", "b"), name("subject"));
    assert_eq!(refused("s", "", "b"), name("from"));
    assert_eq!(refused("s", "a", ""), name("to"));
    assert_eq!(refused("s", "a", "a"), InvalidRecord::SameOwner);
}

#[test]
fn debug_and_errors_contain_no_name_or_snapshot() {
    let id = RecordId::new("canary-id").unwrap();
    let mut machine =
        Machine::new(id, "canary-subject", "canary-from", "canary-to", at(1)).unwrap();
    machine.serialize(b"canary-snapshot").unwrap();
    let mut repository = MemoryRepository::new();
    repository.save(&machine.record(), None).unwrap();
    let conflict = repository.save(&machine.record(), None).unwrap_err();
    let shown =
        format!("{machine:?} {:?} {repository:?} {conflict:?} {conflict}", machine.record());
    // The bytes of the snapshot start with c, a, n; they must not be shown as numbers either.
    assert!(!shown.contains("canary") && !shown.contains("99, 97, 110"), "{shown}");
}
