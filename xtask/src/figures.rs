//! `cargo xtask figures`: runs the commands again whose saved figures belong to older sources.
//!
//! Every block of figures records the hash of the sources it depends on ([`hashes`]). If the
//! sources have another hash, the block is stale: `cargo xtask tidy` lists it, and this command
//! makes it again. A stale block is no failure of tidy, or else no change could land before hours
//! of campaigns (docs/adr/0080-figures-belong-to-sources.md).
//!
//! [`MAKERS`] is the list of commands that save figures, with their blocks and sources.

use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::saved::{self, Block};
use crate::source::without_comments;
use crate::workspace::{File, Workspace};

const USAGE: &str = "[--list]";

/// Where unit tests begin, which are at the end of a file and affect no figure.
const UNIT_TESTS: &str = "\n#[cfg(test)]\nmod tests {";

/// A command that saves figures.
#[derive(Debug)]
pub(crate) struct Maker {
    /// The words after `cargo xtask`.
    pub(crate) words: &'static [&'static str],
    pub(crate) blocks: &'static [Block],
    /// The crates whose code runs, with all crates of the workspace that they depend on.
    packages: &'static [&'static str],
    /// Other files that matter: each of these, and everything below it.
    paths: &'static [&'static str],
}

/// Every command, in order of cost by their last runs: seconds, minutes, hours. The campaign of the
/// simulator comes behind its other runs, because they write some of its blocks too.
pub(crate) const MAKERS: &[Maker] = &[
    Maker {
        words: &["sim", "--same", "--save"],
        blocks: &[saved::SIM_SAME],
        packages: &["gossip-sim"],
        paths: &[],
    },
    Maker {
        words: &["makespan", "--save"],
        blocks: &[saved::MAKESPAN],
        packages: &["gossip-sim-worker"],
        paths: &[],
    },
    Maker {
        words: &["check-handoff", "--save"],
        blocks: &[saved::CHECK_HANDOFF, saved::CHECK_HANDOFF_BUGS],
        packages: &["gossip-sim-handoff"],
        paths: &[],
    },
    Maker {
        words: &["sim-worker", "--save"],
        blocks: &[saved::SIM_WORKER],
        packages: &["gossip-sim-worker"],
        paths: &[],
    },
    Maker {
        words: &["bench", "runtime", "--save"],
        blocks: &[saved::COSTS],
        packages: &["gossip-engine"],
        paths: &["verify/gossip-trials/src/runtime_figures.rs"],
    },
    Maker {
        words: &["bench", "end-to-end", "--save"],
        blocks: &[saved::END_TO_END],
        packages: &["gossip-cli"],
        paths: &["verify/gossip-trials/src/end_to_end"],
    },
    Maker {
        words: &["poison", "--save"],
        blocks: &[saved::POISON],
        packages: &["gossip-cli"],
        paths: &["verify/gossip-trials/src/poison.rs"],
    },
    Maker {
        words: &["bench", "scan", "--save"],
        blocks: &[saved::SCAN],
        packages: &["gossip-cli"],
        paths: &["xtask/src/bench/scan.rs"],
    },
    Maker {
        words: &["scan-trial", "--save"],
        blocks: &[saved::SCAN_TRIAL],
        packages: &["gossip-cli"],
        paths: &["verify/gossip-trials/src/scan.rs"],
    },
    Maker {
        words: &["fleet", "--save"],
        blocks: &[saved::FLEET],
        packages: &["gossip-cli"],
        paths: &["verify/gossip-trials/src/fleet"],
    },
    Maker {
        words: &["sim-handoff", "--save"],
        blocks: &[saved::SIM_HANDOFF, saved::SIM_HANDOFF_BUGS],
        packages: &["gossip-sim-handoff"],
        paths: &[],
    },
    Maker {
        words: &["kill-worker", "--save"],
        blocks: &[saved::KILL_WORKER],
        packages: &["gossip-cli"],
        paths: &["verify/gossip-trials/src/kill_worker.rs"],
    },
    Maker {
        words: &["sim", "--seeds", "300", "--save"],
        blocks: &[saved::SIM_RATE],
        packages: &["gossip-sim"],
        paths: &[],
    },
    Maker {
        words: &["kill-sqlite", "--save"],
        blocks: &[saved::KILL_SQLITE],
        packages: &["gossip-coordination-sqlite"],
        paths: &["verify/gossip-trials/src/sqlite"],
    },
    Maker {
        words: &["power-loss", "--save"],
        blocks: &[saved::POWER_LOSS],
        packages: &["gossip-coordination-sqlite"],
        paths: &["verify/gossip-trials/src/sqlite", "verify/gossip-testkit/src/recording_vfs.rs"],
    },
    Maker {
        words: &["tla", "--save"],
        blocks: &[saved::TLA_CONFIGURATIONS, saved::TLA_MUTATIONS],
        packages: &[],
        paths: &["specs/coordination/"],
    },
    Maker {
        words: &["handoff", "--save"],
        blocks: &[saved::HANDOFF],
        packages: &["gossip-engine"],
        paths: &["verify/gossip-trials/src/handoff"],
    },
    Maker {
        words: &["etcd-faults", "--save"],
        blocks: &[saved::ETCD_FAULTS],
        packages: &["gossip-testkit-etcd"],
        paths: &[
            "verify/gossip-trials/src/etcd_faults.rs",
            "verify/gossip-trials/src/lose_leader.rs",
        ],
    },
    Maker {
        words: &["etcd-network", "--save"],
        blocks: &[saved::ETCD_NETWORK],
        packages: &["gossip-engine"],
        paths: &[
            "verify/gossip-trials/src/etcd_network",
            "verify/gossip-testkit/src/test_support/",
        ],
    },
    Maker {
        words: &["sim", "--pairs", "1000", "--threads", "2", "--save"],
        blocks: &[saved::SIM_PAIRS],
        packages: &["gossip-sim"],
        paths: &[],
    },
    Maker {
        words: &["bench", "stores", "--save"],
        blocks: &[saved::STORES_SQLITE, saved::STORES_ETCD],
        packages: &["gossip-coordination-sqlite", "gossip-coordination-etcd"],
        paths: &[
            "crates/gossip-coordination-sqlite/benches/",
            "crates/gossip-coordination-etcd/benches/",
        ],
    },
    Maker {
        words: &["bench", "--save"],
        blocks: &[saved::BENCHMARKS],
        packages: &["gossip-frontier", "gossip-coordination"],
        paths: &[
            "crates/gossip-stdx/benches/",
            "crates/gossip-contracts/benches/",
            "crates/gossip-frontier/benches/",
            "crates/gossip-coordination/benches/",
        ],
    },
    Maker {
        words: &["check-model", "--save"],
        blocks: &[saved::MODEL_STATES, saved::MODEL_PAIRS, saved::MODEL_UNREACHABLE],
        packages: &["gossip-sim"],
        paths: &[],
    },
    Maker {
        words: &["mutants", "--save"],
        blocks: &[saved::MUTANTS],
        packages: &["gossip-mutants-hunt"],
        paths: &["verify/gossip-mutants/mutants/", "verify/gossip-conformance/testscripts/"],
    },
    Maker {
        words: &["mutation", "--save"],
        blocks: &[saved::MUTATION],
        packages: &[
            "gossip-conformance",
            "gossip-coordination-sqlite",
            "gossip-coordination-etcd",
            "gossip-scanner-runtime",
            "gossip-mutation",
        ],
        paths: &["verify/gossip-mutation/", "verify/gossip-conformance/testscripts/"],
    },
    Maker {
        words: &["sim", "--campaign", "--threads", "2", "--save"],
        blocks: &[saved::SIM_CAMPAIGN, saved::SIM_FAULTS, saved::SIM_OUTCOMES],
        packages: &["gossip-sim"],
        paths: &[],
    },
    Maker {
        words: &["fuzz", "--all", "--runs", "100000000", "--jobs", "2", "--save"],
        blocks: &[saved::FUZZ],
        packages: &["gossip-decoder-laws"],
        paths: &["verify/fuzz/fuzz_targets/"],
    },
    Maker {
        words: &["soak", "--save"],
        blocks: &[saved::SOAK],
        packages: &["gossip-engine"],
        paths: &["verify/gossip-trials/src/soak.rs"],
    },
];

impl Maker {
    fn command(&self) -> String {
        format!("cargo xtask {}", self.words.join(" "))
    }

    fn depends_on(&self, closure: &[&str], file: &File) -> bool {
        let is_below = |prefix: &&str| file.path.starts_with(*prefix);
        // Pages hold figures, or explain them.
        let is_page = file.path.ends_with(".md");
        if self.paths.iter().any(is_below) {
            return !is_page && !file.name().ends_with("tests.rs");
        }
        let is_code = file.is_rust() && !file.is_test();
        is_code
            && closure.iter().any(|directory| file.path.starts_with(&format!("{directory}/src/")))
    }
}

/// Runs every stale command, or lists them.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let lists = match arguments {
        [] => false,
        [list] if list == "--list" => true,
        _ => return Err(Failure::usage("figures", "its only argument is --list", USAGE)),
    };
    let workspace = Workspace::load()?;
    let stale = stale(&workspace, &workspace.files()?);
    for Stale { maker, why } in &stale {
        println!("{}: {why}", maker.command());
    }
    if lists || stale.is_empty() {
        println!("{} of {} commands have stale figures", stale.len(), MAKERS.len());
        return Ok(ExitCode::SUCCESS);
    }
    run_all(&stale)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs them one after the other; one that fails does not stop the others.
fn run_all(stale: &[Stale]) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for Stale { maker, .. } in stale {
        eprintln!("== {}", maker.command());
        if let Err(failure) = process::run(&mut xtask(maker.words)?, "see its output above") {
            eprintln!("{failure}");
            failed.push(maker.command());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let what = format!("{} of {} commands failed", failed.len(), stale.len());
    Err(Failure::new(what, failed.join("; "), "run them one by one and read their output"))
}

/// Returns this program with other arguments.
pub(crate) fn xtask<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new("xtask cannot start itself", error.to_string(), "build xtask again")
    })?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// A command whose figures do not belong to the present sources.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) maker: &'static Maker,
    pub(crate) why: String,
}

/// Returns the commands with a block that is stale or was never made, in order of cost.
pub(crate) fn stale(workspace: &Workspace, files: &[File]) -> Vec<Stale> {
    let hashes = hashes(workspace, files);
    let mut found = Vec::new();
    for (maker, hash) in MAKERS.iter().zip(hashes) {
        let why = maker.blocks.iter().find_map(|block| {
            let page = files.iter().find(|file| file.path == block.page)?;
            let name = block.name;
            match saved::origin(block.find(&page.text)?) {
                None => Some(format!("`{name}` was not run yet")),
                Some(origin) if origin.sources == Some(hash) => None,
                Some(origin) => Some(format!("`{name}` is of commit {}", origin.commit)),
            }
        });
        found.extend(why.map(|why| Stale { maker, why }));
    }
    found
}

/// Returns the hash of the sources of each of [`MAKERS`].
///
/// Comments, formatting and tests do not change it, nor do other crates than ours, manifests and
/// the compiler: the recorded commit says which they were.
pub(crate) fn hashes(workspace: &Workspace, files: &[File]) -> Vec<u64> {
    let closures: Vec<Vec<&str>> =
        MAKERS.iter().map(|maker| closure(workspace, maker.packages)).collect();
    let mut hashes = vec![FNV_OFFSET; MAKERS.len()];
    for file in files {
        let is_user = |(maker, closure): (&Maker, &Vec<&str>)| maker.depends_on(closure, file);
        let users: Vec<bool> = MAKERS.iter().zip(&closures).map(is_user).collect();
        // Each file is read once, and only if a table depends on it.
        if !users.contains(&true) {
            continue;
        }
        let digest = digest(file);
        for (hash, _) in hashes.iter_mut().zip(users).filter(|(_, uses)| *uses) {
            *hash = fnv(*hash, digest.to_le_bytes());
        }
    }
    hashes
}

/// Returns one hash of several.
pub(crate) fn combined(hashes: &[u64]) -> u64 {
    fnv(FNV_OFFSET, hashes.iter().flat_map(|hash| hash.to_le_bytes()))
}

/// Returns the directories of the packages and of everything in the workspace they depend on.
fn closure<'w>(workspace: &'w Workspace, packages: &[&'w str]) -> Vec<&'w str> {
    let mut names: Vec<&str> = packages.to_vec();
    let mut directories = Vec::new();
    let mut next = 0;
    while let Some(name) = names.get(next) {
        next += 1;
        let Some(package) = workspace.package(name) else { continue };
        directories.push(package.directory.as_str());
        for dependency in package.dependencies.iter().filter(|it| it.is_normal) {
            if !names.contains(&dependency.name.as_str()) {
                names.push(&dependency.name);
            }
        }
    }
    directories
}

fn digest(file: &File) -> u64 {
    let text = file.text.split_once(UNIT_TESTS).map_or(file.text.as_str(), |(code, _)| code);
    let code = if file.is_rust() { without_comments(text) } else { text.to_owned() };
    let bytes = code.bytes().filter(|byte| !byte.is_ascii_whitespace());
    fnv(fnv(FNV_OFFSET, file.path.bytes()), bytes)
}

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;

/// Continues an FNV-1a hash, which distinguishes versions and is no protection against forgery.
fn fnv(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    const PRIME: u64 = 0x0100_0000_01B3;
    bytes.into_iter().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
