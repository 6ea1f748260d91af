//! The golden scripts of the protocol, several at a time, for the tests of this crate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gossip_conformance::testscript::{
    SCRIPTS_MIN, ScriptBackend, ScriptOutcome, WorldSettings, run_script,
};
use gossip_coordination_etcd::EtcdConfig;

/// Scripts at a time: most of each is waiting for a disk.
const THREADS: usize = 6;

/// Scripts that repeat an operation a thousand times and more. Fewer would mean that they were not
/// recognised, and all the others wait for them at the end.
const LONG_COUNT: usize = 5;

const _: () = assert!(LONG_COUNT < THREADS);

/// Settings of `config` as a script asks for; `None` if a store cannot have them.
pub(crate) fn configure(mut config: EtcdConfig, settings: WorldSettings) -> Option<EtcdConfig> {
    if !settings.fit_a_store() {
        return None;
    }
    config.claim_cooldown = Duration::from_millis(settings.claim_cooldown.unwrap_or(0));
    Some(config)
}

/// Plays every script through backends and panics with those that are not answered as written.
pub(crate) fn check<B: ScriptBackend>(backend: impl Fn() -> B + Sync) {
    let scripts = scripts();
    assert!(scripts.len() >= SCRIPTS_MIN, "only {} scripts", scripts.len());
    let next = AtomicUsize::new(0);
    let (failures, played) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut backend = backend();
                while let Some((path, text)) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match run_script(&mut backend, text) {
                        Ok(ScriptOutcome::Skipped) => continue,
                        Ok(ScriptOutcome::Done { text: told, .. }) if told == *text => {}
                        other => failures.lock().unwrap().push(failure(path, text, other)),
                    }
                    played.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let skipped = scripts.iter().filter(|(_, text)| is_for_memory_only(text)).count();
    assert_eq!(played.into_inner() + skipped, scripts.len(), "scripts were skipped");
}

fn failure<E: std::fmt::Display>(
    path: &Path,
    text: &str,
    played: Result<ScriptOutcome, E>,
) -> String {
    let what = match played {
        Err(error) => error.to_string(),
        Ok(ScriptOutcome::Skipped) => "skipped".to_owned(),
        Ok(ScriptOutcome::Done { text: told, .. }) => {
            let differs = |(written, told): &(&str, &str)| written != told;
            format!("{:?}", text.lines().zip(told.lines()).find(differs))
        }
    };
    format!("{}: {what}", path.display())
}

/// Whether a script asks for a slab or a limit on all shards, which [`configure`] has not.
fn is_for_memory_only(text: &str) -> bool {
    let asks = |line: &str| line.contains(" slab=") || line.contains(" total_max=");
    text.lines().any(|line| line.starts_with("world ") && asks(line))
}

/// On a disk one of these takes as long as all the others.
fn is_long(text: &str) -> bool {
    let repeats = text.lines().filter_map(|line| line.strip_prefix("repeat "));
    // The last number of the range has four digits or more.
    repeats
        .filter_map(|rest| rest.split_once(".."))
        .any(|(_, rest)| rest.split(' ').next().is_some_and(|last| last.len() >= 4))
}

/// Where a script is, and what it says.
type Script = (PathBuf, String);

/// Every script with its path. The long ones begin, and the others are played beside them.
fn scripts() -> Vec<Script> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../verify/gossip-conformance/testscripts");
    let mut found = Vec::new();
    for topic in fs::read_dir(root).expect("the scripts lie beside the protocol") {
        for script in fs::read_dir(topic.unwrap().path()).unwrap() {
            let path = script.unwrap().path();
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort_unstable_by_key(|(path, text)| (!is_long(text), path.clone()));
    assert_eq!(found.iter().filter(|(_, text)| is_long(text)).count(), LONG_COUNT);
    found
}
