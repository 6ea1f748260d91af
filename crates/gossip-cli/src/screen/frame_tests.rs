//! Frames at several widths, as golden files; `GOSSIP_REWRITE=1` rewrites them.
//!
//! A line of a file ends with `|`, which is where the text of the frame ends; `<` marks a control
//! sequence of a colour.

use std::fs;
use std::path::Path;

use gossip::identity::LogicalTime;
use gossip::runtime::Eta;
use rstest::rstest;

use super::super::map::{Range, Rest};
use super::super::view::{Stall, Title};
use super::*;

const fn progress() -> Progress {
    Progress {
        at: LogicalTime::from_raw(1),
        keys: 1_200,
        unread: 0,
        total: Some(4_000),
        kind: ProgressKind::Exact,
        fraction: Some(0.3),
        percent: Some(30),
        shards_done: 1,
        shards_parked: 0,
        shards_damaged: 0,
        shards_leased: 3,
        shards_waiting: 2,
        paused: false,
        eta: Some(Eta { left: 190_000, error: 20_000 }),
    }
}

fn ranges(holders: [Rest; 3]) -> Vec<Range> {
    let range = |from: u32, covered: u32, to: u32, rest| Range {
        from: f64::from(from) / 4000.0,
        covered: f64::from(covered) / 4000.0,
        to: f64::from(to) / 4000.0,
        rest,
    };
    vec![
        range(0, 600, 600, Rest::Waiting),
        range(600, 850, 1300, holders[0]),
        range(1300, 1500, 2000, holders[1]),
        range(2000, 2150, 2600, holders[2]),
        range(2600, 2600, 3300, Rest::Waiting),
        range(3300, 3300, 4000, Rest::Waiting),
    ]
}

fn lane(job: usize, seconds: u64, item: &str) -> Lane {
    Lane { job, item: item.to_owned(), lasted: Duration::from_secs(seconds), more: 0 }
}

fn title(short: &str) -> Title {
    let text = "run 3f2a00000000beef  exec photos".to_owned();
    Title { short: short.to_owned(), text }
}

fn worker(number: usize, name: &str) -> Worker {
    Worker { number, name: name.to_owned(), shards: 1, stalled: None }
}

/// One process at work, with two jobs.
fn working() -> View {
    View {
        progress: Some(progress()),
        keys_here: 1_210,
        elapsed: Duration::from_secs(62),
        rate: 19.4,
        ranges: ranges([Rest::Leased(0); 3]),
        workers: vec![worker(0, "this worker")],
        lanes: vec![lane(2, 3, "photos/2026/a.jpg"), lane(1, 0, "photos/2026/b.jpg")],
        jobs: 2,
        ..View::default()
    }
}

fn scenes() -> Vec<(&'static str, View)> {
    let failing = View {
        failed: 12_000,
        progress: Some(Progress {
            unread: 2,
            kind: ProgressKind::Estimated,
            total: Some(1_234_567),
            eta: None,
            ..progress()
        }),
        ranges: [
            ranges([Rest::Leased(0); 3]),
            vec![Range { from: 0.2, covered: 0.2, to: 0.2, rest: Rest::Failed }],
            vec![Range { from: 0.61, covered: 0.61, to: 0.61, rest: Rest::Failed }],
        ]
        .concat(),
        failure: Some(failure_text(
            "photos/\\u{1b}]0;x/日本語の名前とても長い名前.jpg",
            "exit status 22: curl: (22) The requested URL returned error: 404\nmore",
        )),
        lanes: vec![lane(1, 3_700, "photos/2026/日本語の名前とても長い名前とても長い名前.jpg")],
        ..working()
    };
    let three = || vec![worker(0, "this worker"), worker(1, "pid 4013"), worker(2, "pid 4014")];
    let shared = View {
        ranges: ranges([Rest::Leased(0), Rest::Leased(1), Rest::Leased(2)]),
        workers: three(),
        ..working()
    };
    let mut workers = three();
    let stall = Stall { left: Duration::from_millis(8_400), is_gone: true };
    workers[2].stalled = Some(stall);
    let killed = View {
        ranges: ranges([Rest::Leased(0), Rest::Leased(1), Rest::Stalled]),
        workers: workers.clone(),
        ..working()
    };
    workers[2].stalled = Some(Stall { left: Duration::ZERO, is_gone: false });
    workers[1].stalled = Some(Stall { is_gone: false, ..stall });
    let both_killed = View {
        ranges: ranges([Rest::Leased(0), Rest::Stalled, Rest::Stalled]),
        workers,
        ..working()
    };
    let lanes = (1..=64).map(|job| {
        let lane = lane(job, 100 - job as u64, "https://example.org/a?b=c");
        Lane { more: job * 100, ..lane }
    });
    let paused = Progress { paused: true, kind: ProgressKind::Unknown, total: None, ..progress() };
    let paused = Progress { fraction: None, percent: None, eta: None, ..paused };
    vec![
        ("start", View { jobs: 2, keys_here: 7, ..View::default() }),
        ("one worker", working()),
        ("failures", failing),
        ("three workers", shared),
        ("a worker was killed", killed),
        ("two workers do not renew", both_killed),
        ("64 jobs", View { lanes: lanes.collect(), jobs: 64, ..working() }),
        (
            "paused, with a title",
            View {
                title: Some(title("3f2a0000")),
                progress: Some(paused),
                halted: Some("paused".to_owned()),
                lanes: Vec::new(),
                ..working()
            },
        ),
    ]
}

const STYLES: [(&str, Style); 3] = [
    ("colours", Style { is_colored: true, is_ascii: false }),
    ("no colours", Style::PLAIN),
    ("ASCII", Style { is_colored: false, is_ascii: true }),
];

fn frames(columns: usize) -> String {
    let mut text = String::new();
    for (name, view) in scenes() {
        for (style_name, style) in STYLES {
            text += &format!("# {name}, {style_name}\n");
            for line in lines(&view, Size { columns, rows: 40 }, style) {
                assert!(line.width() < columns, "{name}: {line:?}");
                let line = line.render(style).replace('\x1b', "<");
                assert!(!line.contains(char::is_control), "{name}: {line:?}");
                assert!(style.is_ascii <= (line.is_ascii() || line.contains('日')), "{line}");
                text += &format!("{line}|\n");
            }
        }
    }
    text
}

#[rstest]
#[case(20)]
#[case(80)]
#[case(200)]
fn frames_are_as_recorded(#[case] columns: usize) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frames");
    let path = directory.join(format!("{columns}.txt"));
    let actual = frames(columns);
    if std::env::var_os("GOSSIP_REWRITE").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap();
    for (recorded, actual) in recorded.lines().zip(actual.lines()) {
        assert_eq!(recorded, actual, "set GOSSIP_REWRITE=1 to rewrite {}", path.display());
    }
    assert_eq!(recorded.lines().count(), actual.lines().count());
}

/// No size makes a frame too wide, too high, or a panic.
#[test]
fn frames_fit_every_terminal() {
    for columns in 0..230 {
        for rows in [0, 1, 2, 3, 5, 8, 13, 24] {
            for (name, view) in scenes() {
                for (_, style) in STYLES {
                    let drawn = lines(&view, Size { columns, rows }, style);
                    assert!(drawn.len() < rows.max(1), "{name} {columns} {rows}");
                    assert!(drawn.iter().all(|line| line.width() < columns), "{name} {columns}");
                }
            }
        }
    }
}

#[test]
fn small_terminal_keeps_what_matters() {
    let texts = |rows| {
        let drawn = lines(&scenes()[4].1, Size { columns: 60, rows }, Style::PLAIN);
        drawn.iter().map(|line| line.render(Style::PLAIN)).collect::<Vec<_>>().join("\n")
    };
    assert!(texts(2).starts_with(" 30 %"), "{}", texts(2));
    assert!(texts(3).contains("ETA"), "{}", texts(3));
    assert!(texts(4).contains("pid 4014 is gone"), "{}", texts(4));
    assert!(texts(5).contains('░') && texts(5).contains('█'), "{}", texts(5));
}

/// Twenty runs share the screen: each has a line, which begins with its name.
#[test]
fn many_runs_keep_their_names() {
    for columns in [20, 40, 80] {
        let names: Vec<String> = (0..20).map(|number| format!("run-{number:02}")).collect();
        let view = |name: &String| View { title: Some(title(name)), ..working() };
        let views: Vec<View> = names.iter().map(view).collect();
        let drawn = all(&views, Size { columns, rows: 24 }, Style::PLAIN);
        let drawn: Vec<String> = drawn.iter().map(|line| line.render(Style::PLAIN)).collect();
        for name in &names {
            let line = drawn.iter().find(|line| line.starts_with(name.as_str()));
            assert!(line.is_some_and(|line| line.contains("30 %")), "{columns} {name}: {drawn:?}");
        }
    }
}
