//! The jobs that other tools do, too.

use std::fmt::Write as _;

use super::measure::{Contestant, median, rows, seconds};
use super::{Bench, trees};
use crate::{Outcome, runtime_figures};

const HEAD: &str = "| job | program | wall time | ÷ second | processor | memory |\n\
                    |---|---|---:|---:|---:|---:|\n";

/// Keys of the closure job.
const CLOSURE_KEYS: usize = 1_000_000;

/// Runs all jobs and returns their tables.
pub(super) fn tables(bench: &Bench) -> Outcome<String> {
    trees::make(bench)?;
    let mut table = HEAD.to_owned();
    for part in [start(bench)?, commands(bench)?, tree_jobs(bench)?, streams(bench)?] {
        table.push_str(&part);
    }
    let closure = closure(bench)?;
    Ok(format!("{table}\n{closure}"))
}

/// Returns `gossip exec` with these words as a contestant.
fn ours<'a>(name: &'a str, words: Vec<String>) -> Contestant<'a> {
    Contestant::new(name, move |bench| {
        bench.exec(&words.iter().map(String::as_str).collect::<Vec<_>>())
    })
}

/// Returns `gossip exec` with these words as a contestant whose output goes to a file.
fn to_file<'a>(name: &'a str, words: &str) -> Contestant<'a> {
    let words = words.to_owned();
    Contestant::new(name, move |bench| {
        bench.remove_store()?;
        let (gossip, store) = (bench.gossip.display(), bench.sqlite());
        Ok(bench.shell(&format!("exec '{gossip}' exec --quiet --store '{store}' {words} > out")))
    })
}

fn shell<'a>(name: &'a str, script: String) -> Contestant<'a> {
    Contestant::new(name, move |bench| Ok(bench.shell(&script)))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn start(bench: &Bench) -> Outcome<String> {
    let contestants = [
        ours("gossip", words("range:0..1 -- true")),
        shell("xargs", "echo 0 | xargs true".to_owned()),
    ];
    rows(bench, "one command, new store", &contestants)
}

fn commands(bench: &Bench) -> Outcome<String> {
    let (many, lines) = (bench.scaled(4_000), bench.scaled(20_000));
    let contestants = [
        ours("gossip -j2", words(&format!("range:0..{many} -j2 -- true"))),
        shell("xargs -P2 -n1", format!("seq {many} | xargs -P2 -n1 true")),
        // A tenth of the commands, because it takes milliseconds for each.
        shell("GNU parallel -j2, a tenth", format!("seq {} | parallel -j2 true", many / 10)),
    ];
    let each = rows(bench, &format!("{many} × `true`"), &contestants)?;
    let contestants = [
        to_file("gossip -j2", &format!("range:0..{many} -j2 -- echo")),
        shell("xargs -P2 -n1", format!("seq {many} | xargs -P2 -n1 echo > out")),
        to_file("gossip -j2 --ungroup", &format!("range:0..{many} -j2 --ungroup -- echo")),
    ];
    let grouped = rows(bench, &format!("{many} × `echo`, output to a file"), &contestants)?;
    std::fs::write(bench.directory.join("lines.txt"), numbered(lines))?;
    let contestants = [
        ours("gossip -j2 -b100", words("lines:lines.txt -j2 -b100 -- true")),
        shell("xargs -P2 -n100", "xargs -P2 -n100 -a lines.txt true".to_owned()),
        shell("GNU parallel -j2 -n100", "parallel -j2 -n100 -a lines.txt true".to_owned()),
    ];
    let batches = rows(bench, &format!("{lines} lines, batches of 100"), &contestants)?;
    Ok(each + &grouped + &batches)
}

fn numbered(lines: usize) -> String {
    let mut text = String::new();
    for line in 0..lines {
        // Writing into a string does not fail.
        let _ = writeln!(text, "https://example.org/item/{line}");
    }
    text
}

fn tree_jobs(bench: &Bench) -> Outcome<String> {
    let files = bench.scaled(trees::FILES);
    let mut table = String::new();
    for tree in trees::TREES {
        let find = format!("find {tree} -type f -print0");
        let xargs = "xargs -0 -n1000 -P2 true";
        let contestants = [
            ours("gossip -j2 -b1000", words(&format!("{tree} -j2 -b1000 -- true"))),
            shell("find, sort, xargs", format!("{find} | LC_ALL=C sort -z | {xargs}")),
            shell("find, xargs", format!("{find} | {xargs}")),
            shell("fd, xargs", format!("fdfind -uu -t f -0 . {tree} | {xargs}")),
            shell("rg --files, xargs", format!("rg --files -uu -0 {tree} | {xargs}")),
        ];
        table.push_str(&rows(bench, &format!("{files} files, {tree}"), &contestants)?);
    }
    let sorted = "find flat -type f -print0 | LC_ALL=C sort -z | xargs -0 -n1000 -P8 true";
    let contestants = [
        ours("gossip -j8 -b1000", words("flat -j8 -b1000 -- true")),
        shell("find, sort, xargs -P8", sorted.to_owned()),
        ours("gossip -j32 -b1000", words("flat -j32 -b1000 -- true")),
        ours("gossip -j2 -b1000 --shards 256", words("flat -j2 -b1000 --shards 256 -- true")),
    ];
    table.push_str(&rows(bench, &format!("{files} files, flat"), &contestants)?);
    Ok(table)
}

fn streams(bench: &Bench) -> Outcome<String> {
    let (many, few) = (bench.scaled(1_000_000), bench.scaled(100_000));
    let handler = bench.handler();
    let range = |keys: usize, options: &str, kind: &str| {
        let mut words = words(&format!("range:0..{keys} {options} --"));
        words.extend([handler.clone(), "handle".to_owned(), kind.to_owned()]);
        words
    };
    let plain = |keys: usize| {
        shell("plain pipe, no answers", format!("seq {keys} | '{handler}' handle plain"))
    };
    let contestants = [
        ours("gossip --stream -b100 -j2", range(many, "--stream -b100 -j2", "json")),
        plain(many),
        ours("gossip --stream=lines -b100 -j2", range(many, "--stream=lines -b100 -j2", "lines")),
    ];
    let wide = rows(bench, &format!("{many} numbers to a handler"), &contestants)?;
    let contestants = [
        ours("gossip --stream -b1 -j1", range(few, "--stream -b1 -j1", "json")),
        plain(few),
        ours("gossip --stream=lines -b1 -j1", range(few, "--stream=lines -b1 -j1", "lines")),
    ];
    Ok(wide + &rows(bench, &format!("{few} numbers, one at a time"), &contestants)?)
}

/// A closure on one thread, with every checkpoint synced, beside a loop over the same pages.
fn closure(bench: &Bench) -> Outcome<String> {
    let keys = bench.scaled(CLOSURE_KEYS) as u64;
    let (mut bare, mut scanned, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let round = [
            runtime_figures::bare_trivial(keys)?,
            runtime_figures::scanned_trivial(&bench.directory, keys)?,
        ];
        ratios.push(round[1] / round[0]);
        bare.push(round[0]);
        scanned.push(round[1]);
    }
    let [bare, scanned] = [bare, scanned].map(|it| seconds(median(it)));
    Ok(format!(
        "| closure, one thread, durable | bare loop | scan | scan ÷ bare |\n|---|---:|---:|---:|\n\
         | {keys} trivial keys | {bare} | {scanned} | {:.2} |",
        median(ratios)
    ))
}
