//! The history check detects each false line in a journal.

use gossip_coordination_sqlite::SqliteDatabase;
use gossip_testkit::test_support::TestDirectory;

use crate::sqlite::history_check::HistoryCheck;
use crate::sqlite::journal::{Call, Journal, Line, read};
use crate::sqlite::work;
use crate::sqlite::world::{found, open};

/// A store that one process used, with its journal.
struct Truth {
    database: SqliteDatabase,
    lines: Vec<Line>,
    /// Removed after the database is closed.
    _directory: TestDirectory,
}

impl Truth {
    fn new(name: &str) -> Self {
        let directory = TestDirectory::new(name);
        let file = directory.path().join("store.db");
        let database = open(&file).unwrap();
        found(&database).unwrap();
        let journal = directory.path().join("journal");
        work::run(&file, &journal, 1, 60, 5).unwrap();
        let lines = (0..work::THREADS)
            .flat_map(|thread| read(&work::journal_of(&journal, thread)).unwrap())
            .collect();
        Self { database, lines, _directory: directory }
    }

    /// Checks a history with these lines after the true ones.
    fn with(&self, more: &[Line]) -> Result<usize, String> {
        let mut history = HistoryCheck::default();
        let lines: Vec<Line> = self.lines.iter().chain(more).copied().collect();
        history.enter(&lines).map_err(|failure| failure.to_string())?;
        history.check(&self.database).map_err(|failure| failure.to_string())
    }

    /// Returns the last acknowledged line that `wanted` accepts.
    fn last(&self, wanted: impl Fn(Call) -> bool) -> Line {
        let mut lines = self.lines.iter().rev().copied();
        lines.find(|line| line.is_acknowledged && wanted(line.call)).unwrap()
    }

    /// Returns the acknowledged checkpoint at the highest key. The last line of a journal need not
    /// be it: another thread may have continued the shard.
    fn furthest_checkpoint(&self) -> Line {
        let key_of = |line: &Line| match line.call {
            Call::Checkpoint { key, .. } if line.is_acknowledged => Some(key),
            _ => None,
        };
        self.lines.iter().copied().max_by_key(key_of).unwrap()
    }
}

#[test]
fn the_truth_is_accepted_and_every_lie_is_found() {
    let truth = Truth::new("lies");
    assert!(truth.with(&[]).unwrap() >= 8);

    let grant = truth.last(|call| matches!(call, Call::Grant { .. }));
    let found = truth.with(&[grant]).unwrap_err();
    assert!(found.contains("was given twice"), "{found}");
    let Call::Grant { fence } = grant.call else { panic!("a grant") };
    let later = Line { call: Call::Grant { fence: fence + 1_000 }, ..grant };
    assert!(truth.with(&[later]).unwrap_err().contains("a later one was given"));

    let checkpoint = truth.furthest_checkpoint();
    let Call::Checkpoint { fence, op, key } = checkpoint.call else { panic!("a checkpoint") };
    let further = Call::Checkpoint { fence, op, key: key + 1 };
    let found = truth.with(&[Line { call: further, ..checkpoint }]).unwrap_err();
    assert!(found.contains("lost an acknowledged checkpoint"), "{found}");
    let call = Call::Checkpoint { fence: fence + 1_000, op: op + 1_000, key };
    let found = truth.with(&[Line { call, ..checkpoint }]).unwrap_err();
    assert!(found.contains("forgot"), "{found}");

    let call = Call::Split { fence, op, child: (1 << 63) | 7 };
    let found = truth.with(&[Line { call, ..checkpoint }]).unwrap_err();
    assert!(found.contains("was acknowledged and is missing"), "{found}");
}

#[test]
fn unrequested_state_is_detected() {
    let mut truth = Truth::new("invented");
    let lines = std::mem::take(&mut truth.lines);
    let mut without = |dropped: fn(&Line) -> bool| {
        truth.lines = lines.iter().filter(|line| !dropped(line)).copied().collect();
        truth.with(&[]).unwrap_err()
    };
    let found = without(|line| matches!(line.call, Call::Checkpoint { .. }));
    assert!(found.contains("at a key without a request"), "{found}");
    let found = without(|line| matches!(line.call, Call::Grant { .. }) && !line.is_acknowledged);
    assert!(found.contains("0 asked for"), "{found}");
    let found = without(|line| matches!(line.call, Call::Split { .. }));
    assert!(found.contains("exists without a request"), "{found}");
}

#[test]
fn a_torn_line_counts_as_not_written() {
    let directory = TestDirectory::new("journal");
    let path = directory.path().join("journal");
    let call = Call::Checkpoint { fence: 2, op: 3, key: 1 << 90 };
    let mut journal = Journal::create(&path).unwrap();
    journal.ask(1, call).unwrap();
    journal.got(1, call).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(read(&path).unwrap().len(), 2);
    std::fs::write(&path, &text[..text.len() - 4]).unwrap();
    assert_eq!(read(&path).unwrap(), [Line { is_acknowledged: false, shard: 1, call }]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read(&path).unwrap(), []);
}
