//! `cargo xtask scan-trial`: plants secrets in a tree, scans it, and scans it again with workers
//! that are killed.
//!
//! `scan-trial FILES SECRETS KILLS SEED DIRECTORY`. Secrets of all kinds, in several encodings and
//! containers, lie among files without any. An uninterrupted scan must find every planted one and
//! nothing in the other files. Then two workers scan the same tree into a new store and are killed
//! with signal 9 at random moments, again and again; their report must be that of the uninterrupted
//! scan, line by line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip::secrets::RuleSet;
use gossip_testkit::Rng;

use crate::Outcome;
use crate::process::Gossip;

/// Files per directory.
const PER_DIRECTORY: usize = 200;
/// Short, because the next process waits until the lease of one on another host would expire.
const LEASE: &str = "300ms";
/// A worker is killed within this many times the duration of an uninterrupted scan: some are killed
/// before they have claimed anything, some at work, some while they report.
const LIFE_MAX: f64 = 1.5;
/// After this many kills a round lets its workers finish. Without the bound a round would never end
/// where a scan takes longer than its workers live.
const ROUND_KILLS_MAX: usize = 40;
/// Workers at a time.
const WORKERS: usize = 2;

/// The program `scan-trial`.
pub fn main() -> ExitCode {
    crate::run_program(run)
}

fn run(words: &[&str]) -> Outcome<String> {
    let [files, secrets, kills, seed, directory] = *words else {
        return Err("usage: scan-trial FILES SECRETS KILLS SEED DIRECTORY".into());
    };
    let begun = Instant::now();
    let gossip = Gossip::on_sqlite(directory.as_ref())?;
    let mut rng = Rng::seeded(seed.parse()?);
    let (files, secrets, kills): (usize, usize, usize) =
        (files.parse()?, secrets.parse()?, kills.parse()?);
    let planted = plant(gossip.directory(), files, secrets, &mut rng)?;
    write_key(gossip.directory())?;
    let mut trial = Trial { gossip, rng, life_max: Duration::ZERO, rounds: 0, kills: 0 };
    let scan_begun = Instant::now();
    let whole = trial.report("whole.db")?;
    trial.life_max = scan_begun.elapsed().mul_f64(LIFE_MAX);
    let invented = check(&whole, &planted)?;
    while trial.kills < kills {
        trial.round(&whole, ROUND_KILLS_MAX.min(kills - trial.kills))?;
        let Trial { kills, rounds, .. } = &trial;
        writeln!(io::stdout(), "{kills} kills in {rounds} scans, the same report each time")?;
    }
    let Trial { kills, rounds, .. } = &trial;
    let (lines, seconds) = (whole.lines().count(), begun.elapsed().as_secs_f64());
    Ok(format!(
        "| {files} | {secrets} | {} found, 0 missed, {invented} invented | {lines} | {kills} | \
         {rounds} | {seconds:.0} s |",
        planted.len()
    ))
}

/// Rule of the secret in each file that has one, by path.
type Planted = BTreeMap<String, String>;

/// Makes the tree.
fn plant(directory: &Path, files: usize, secrets: usize, rng: &mut Rng) -> Outcome<Planted> {
    let rules = RuleSet::built_in();
    // Rules for names of files apply to files of those names, and not in archives.
    let kinds: Vec<_> = rules.iter().collect();
    let mut planted = Planted::new();
    let every = files / secrets.max(1);
    for number in 0..files {
        let directory = directory.join("tree").join(format!("d{:04}", number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let has_secret = number % every.max(1) == 0 && planted.len() < secrets;
        if !has_secret {
            fs::write(directory.join(format!("f{number:06}.txt")), prose(number, rng))?;
            continue;
        }
        let rule = kinds[planted.len() % kinds.len()];
        let form = (planted.len() / kinds.len() + planted.len()) % FORMS.len();
        let (form, name) = match rule.files.first() {
            // An archive has no name of its rules.
            Some(pattern) => {
                (form % TEXT_FORMS, format!("f{number:06}-{}", pattern.replace('*', "x")))
            }
            None => (form, format!("f{number:06}.txt")),
        };
        // A pattern without a star at its start is the beginning or all of a name.
        let name = match rule.files.first() {
            Some(pattern) if !pattern.starts_with('*') => {
                let own = directory.join(format!("s{number:06}"));
                fs::create_dir_all(&own)?;
                format!("s{number:06}/{}", pattern.replace('*', "x"))
            }
            _ => name,
        };
        let sample = rule.mint(rng.next_u64() >> 8)?;
        let content = FORMS[form](&sample);
        fs::write(directory.join(&name), content)?;
        let shown = format!("d{:04}/{name}", number / PER_DIRECTORY);
        planted.insert(shown, rule.id.clone());
    }
    Ok(planted)
}

/// Text without a secret, a few hundred bytes.
fn prose(number: usize, rng: &mut Rng) -> String {
    const WORDS: [&str; 12] = [
        "the", "cursor", "moves", "past", "every", "item", "token", "of", "a", "shard", "key", "fn",
    ];
    let mut text = format!("file {number}\n");
    for _ in 0..60 + rng.below(40) {
        let word = WORDS[rng.index(WORDS.len())];
        let _ = write!(text, "{word} ");
        if rng.below(9) == 0 {
            text.push('\n');
        }
    }
    text
}

type Form = fn(&[u8]) -> Vec<u8>;

/// Forms before this index are texts and no containers.
const TEXT_FORMS: usize = 6;

const FORMS: [Form; 9] = [
    |sample| surrounded(sample),
    |sample| [b"data: ", &base64(&[sample, b"\n"].concat())[..], b"\n"].concat(),
    |sample| [b"data: ", &base64(&[b" ", sample, b"\n"].concat())[..], b"\n"].concat(),
    |sample| surrounded(sample).iter().flat_map(|byte| [*byte, 0]).collect(),
    |sample| surrounded(sample).iter().flat_map(|byte| [0, *byte]).collect(),
    // Across the edge of a chunk of a mebibyte.
    |sample| [&b"x\n".repeat((1 << 19) - 5), &surrounded(sample)[..]].concat(),
    |sample| tar(&surrounded(sample)),
    |sample| gzip(&surrounded(sample)),
    |sample| gzip(&tar(&surrounded(sample))),
];

fn surrounded(sample: &[u8]) -> Vec<u8> {
    [b"first line\n  ", sample, b" \nlast line\n"].concat()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let value = bits >> (18 - 6 * index) & 63;
            text.push(if index > group.len() { b'=' } else { ALPHABET[value as usize] });
        }
    }
    text
}

/// A tar archive with one member.
fn tar(content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..6].copy_from_slice(b"member");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let padding = content.len().next_multiple_of(512) - content.len() + 1024;
    [&header, content, &vec![0; padding]].concat()
}

/// A gzip file whose content is stored, not compressed.
fn gzip(content: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = content.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let len = u16::try_from(block.len()).expect("a block is shorter");
        file.push(u8::from(blocks.peek().is_none()));
        file.extend_from_slice(&len.to_le_bytes());
        file.extend_from_slice(&(!len).to_le_bytes());
        file.extend_from_slice(block);
    }
    file.extend_from_slice(&crc32(content).to_le_bytes());
    file.extend_from_slice(&(content.len() as u32).to_le_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Writes a key that is no secret, readable by its owner only.
fn write_key(directory: &Path) -> Outcome<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = directory.join("key");
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(writeln!(file, "{}", "07".repeat(32))?)
}

/// Compares a report with the planted secrets. Returns how many findings lie in other files.
fn check(report: &str, planted: &Planted) -> Outcome<usize> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in report.lines() {
        let value: serde_json::Value = serde_json::from_str(line)?;
        if value["type"] == "unread" {
            return Err(format!("not read: {line}").into());
        }
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        if value["type"] == "finding" {
            found.entry(text("path")).or_default().push(text("rule"));
        }
    }
    let has = |(path, rule): &(&String, &String)| {
        found.get(*path).is_some_and(|rules| rules.contains(rule))
    };
    let missed: Vec<_> = planted.iter().filter(|it| !has(it)).collect();
    if !missed.is_empty() {
        return Err(format!("{} missed: {missed:?}", missed.len()).into());
    }
    let invented: Vec<_> = found.iter().filter(|(path, _)| !planted.contains_key(*path)).collect();
    if !invented.is_empty() {
        return Err(format!("invented: {invented:?}").into());
    }
    Ok(invented.len())
}

struct Trial {
    gossip: Gossip,
    rng: Rng,
    /// Maximum time until a worker is killed.
    life_max: Duration,
    rounds: usize,
    kills: usize,
}

impl Trial {
    fn start(&self, store: &Path) -> io::Result<Child> {
        let mut command = self.gossip.command();
        command.arg("--store").arg(format!("sqlite:{}", store.display()));
        command.args(["scan", "tree", "--secret-key-file", "key", "--lease", LEASE]);
        command.args(["--retries", "1000000", "--checkpoint-every", "50ms", "-o", "jsonl", "-q"]);
        command.args(["--jobs", "2"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    }

    /// Scans into a store without an interruption, and returns the sorted findings.
    fn report(&self, store: &str) -> Outcome<String> {
        let worker = self.start(&self.store(store)?)?;
        finished(worker)
    }

    /// Returns the path of a store; an existing one is removed.
    fn store(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.gossip.directory().join(name);
        for ending in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.gossip.directory().join(format!("{name}{ending}")));
        }
        Ok(path)
    }

    /// Scans into a new store with workers that are killed, at most `kills_max` of them, until one
    /// lives to the end.
    fn round(&mut self, whole: &str, kills_max: usize) -> Outcome<()> {
        let store = self.store("killed.db")?;
        let mut workers: Vec<Child> = Vec::new();
        let mut killed = 0;
        while killed < kills_max {
            while workers.len() < WORKERS {
                workers.push(self.start(&store)?);
            }
            thread::sleep(self.life_max.mul_f64(self.rng.below(1_000) as f64 / 1e3));
            if any_ended(&mut workers)? {
                break;
            }
            let victim = self.rng.index(workers.len());
            let mut victim = workers.remove(victim);
            let killed_it = victim.kill();
            victim.wait()?;
            killed_it?;
            killed += 1;
        }
        self.rounds += 1;
        self.kills += killed;
        // Each prints the whole report, whichever worker found a secret.
        for worker in workers {
            if finished(worker)? != whole {
                return Err(format!("after {killed} kills the report differs").into());
            }
        }
        Ok(())
    }
}

fn any_ended(workers: &mut [Child]) -> io::Result<bool> {
    for worker in workers {
        if worker.try_wait()?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for a worker, and returns its findings in sorted lines, without the run and the counts.
fn finished(worker: Child) -> Outcome<String> {
    let output = worker.wait_with_output()?;
    if output.status.code() != Some(0) {
        return Err(format!("a scan ended with {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut lines: Vec<_> = text.lines().filter(|line| !line.contains("\"summary\"")).collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}
