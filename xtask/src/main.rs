//! Project tasks: `cargo xtask COMMAND`.
//!
//! One file per command; [`COMMANDS`] lists them. A command is a function from its arguments to an
//! exit code. Errors are a [`Failure`]: what happened, the cause, and the command to run next.
//!
//! xtask is never part of the product: no crate depends on it, and it depends on none of them. Its
//! only library reads the JSON that cargo prints, so that it builds in seconds.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool: results on stdout, everything else on stderr"
)]

mod bench;
mod check_handoff;
mod check_model;
mod coverage;
mod deny;
mod dist;
mod etcd_faults;
mod etcd_network;
mod failure;
mod figures;
mod fuzz;
mod handoff;
mod items;
mod kill_sqlite;
mod miri;
mod mutants;
mod mutation;
mod newer_etcd;
mod nightly;
mod numbers;
mod power_loss;
mod process;
mod saved;
mod sbom;
mod scheduling;
mod setup;
mod sim;
mod sim_handoff;
mod sim_worker;
mod source;
mod tally;
mod test;
mod test_programs;
mod tidy;
mod tla;
mod worker_trials;
mod workspace;

use std::env;
use std::process::ExitCode;

use failure::Failure;

/// The exit code for an invalid command line.
const EXIT_USAGE: u8 = 2;

/// One command of xtask.
struct Command {
    /// The word after `cargo xtask`.
    name: &'static str,
    /// The arguments as shown in the list of commands.
    arguments: &'static str,
    /// A short description for the list of commands.
    purpose: &'static str,
    run: fn(&[String]) -> Result<ExitCode, Failure>,
}

/// All commands, the most frequent ones first.
const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[--quick]",
        purpose: "setup, format, tidy, clippy, all tests, documentation; counts the tests",
        run: test::run,
    },
    Command {
        name: "tidy",
        arguments: "",
        purpose: "check crate boundaries, names of the specification, sizes, leftovers, and the \
                  origin of figures",
        run: tidy::run,
    },
    Command {
        name: "setup",
        arguments: "[COMMAND]",
        purpose: "install the packages that COMMAND (default: test) needs",
        run: setup::run,
    },
    Command {
        name: "dist",
        arguments: "",
        purpose: "build the files of a release below target/dist: binary, debug information, \
                  completions, man pages, checksums; static too where musl is installed",
        run: dist::run,
    },
    Command {
        name: "sbom",
        arguments: "",
        purpose: "list what the binary is built from, as CycloneDX JSON",
        run: sbom::run,
    },
    Command {
        name: "figures",
        arguments: "[--list]",
        purpose: "make saved figures again whose sources have changed, cheap ones first",
        run: figures::run,
    },
    Command {
        name: "nightly",
        arguments: nightly::USAGE,
        purpose: "run every campaign for N hours, resuming after an interruption; writes \
                  docs/nightly.md and fails if one of them fails",
        run: nightly::run,
    },
    Command {
        name: "bench",
        arguments: "[FILTER] [--save]",
        purpose: "measure time and instructions of every benchmark; --save writes docs/benchmarks.md; \
                  `stores` compares stores with their bare engines, `runtime` scans with bare \
                  loops, `end-to-end` commands with find, xargs and others",
        run: bench::run,
    },
    Command {
        name: "makespan",
        arguments: "[--save]",
        purpose: "spread uneven work over workers in virtual time; --save writes the table of \
                  docs/scheduling.md",
        run: scheduling::makespan,
    },
    Command {
        name: "fuzz",
        arguments: fuzz::USAGE,
        purpose: "run one fuzz target for a time or a number of executions, or all of them; \
                  --save writes the table of docs/reliability.md",
        run: fuzz::run,
    },
    Command {
        name: "check-model",
        arguments: "[--config NAME] [--max-states N] [--short] | --save",
        purpose: "search small configurations of the kernel exhaustively; \
                  --save writes the tables of docs/reliability-model.md",
        run: check_model::run,
    },
    Command {
        name: "tla",
        arguments: "[--short | --mutations] [--save]",
        purpose: "search the TLA+ specification exhaustively, then its mutations; \
                  --save writes the tables of its README",
        run: tla::run,
    },
    Command {
        name: "sim",
        arguments: "[--seed N] [--seeds N] [--ops N] [--faults LIST] [--bugs] [--save] | \
                    --same [--save] | --pairs N [--seed N] [--threads N] [--save] | \
                    --campaign [--seeds N] [--threads N] [--progress FILE] \
                    [--any-build] [--so-far] [--save]",
        purpose: "run simulated worlds with faults, or search for mutants of the store; --campaign runs \
                  very many and resumes where it was stopped; --pairs compares a tenant's answers \
                  with and without another tenant; \
                  --save writes the tables of docs/reliability-simulation.md",
        run: sim::run,
    },
    Command {
        name: "mutants",
        arguments: "[--short] [--mutant NAME] [--save]",
        purpose: "look for every mutant in a copy of the workspace, with every layer of \
                  verification; --save writes the table of docs/reliability.md",
        run: mutants::run,
    },
    Command {
        name: "kill-sqlite",
        arguments: "[--cycles N] [--seed N] [--save]",
        purpose: "kill and race processes on one SQLite file, and check its content; --save \
                  writes the table of docs/reliability.md",
        run: kill_sqlite::run,
    },
    Command {
        name: "power-loss",
        arguments: power_loss::USAGE,
        purpose: "cut the power under an SQLite file at every sync, and check every image that it \
                  may leave; --save writes the table of docs/reliability.md",
        run: power_loss::run,
    },
    Command {
        name: "check-handoff",
        arguments: "[FAULTS CRASHES] | --save",
        purpose: "search everything that can happen to one handoff, and for mutants; \
                  --save writes the tables of docs/reliability.md",
        run: check_handoff::run,
    },
    Command {
        name: "sim-handoff",
        arguments: "[--schedules N] [--from SEED] [--threads N] [--save] | --seed SEED | \
                    --bugs [--save]",
        purpose: "play random schedules of handoffs, and look for mutants; \
                  --save writes the tables of docs/reliability.md",
        run: sim_handoff::run,
    },
    Command {
        name: "sim-worker",
        arguments: "[--seeds N] [--save] | --seed SEED",
        purpose: "play worlds of the worker's own loop with faults; --save writes the table of \
                  docs/reliability.md",
        run: sim_worker::run,
    },
    Command {
        name: "handoff",
        arguments: "[--moves N] [--store sqlite|etcd] [--save]",
        purpose: "hand off shards between real processes, kill and restart them; measure the gaps",
        run: handoff::run,
    },
    Command {
        name: "etcd-faults",
        arguments: "[--rounds N] [--save]",
        purpose: "repeatedly lose the leader of three etcd servers while workers run, and stop \
                  workers; --save writes the tables of docs/reliability.md",
        run: etcd_faults::run,
    },
    Command {
        name: "etcd-network",
        arguments: etcd_network::USAGE,
        purpose: "cut, flap and slow down the links between three etcd servers and workers with \
                  wrong clocks, stop both, and check every history; --save writes the tables of \
                  docs/reliability.md",
        run: etcd_network::run,
    },
    Command {
        name: "kill-worker",
        arguments: "[--kills N] [--seed N] [--save]",
        purpose: "kill gossip exec repeatedly and check that no key is lost",
        run: worker_trials::kill_worker,
    },
    Command {
        name: "fleet",
        arguments: "[--keys N] [--save]",
        purpose: "eight workers on one etcd: kill, stop and drain some, and check the results",
        run: worker_trials::fleet,
    },
    Command {
        name: "poison",
        arguments: "[--keys N] [--killers N] [--seed N] [--jobs N] [--save]",
        purpose: "poison keys so that they kill their worker, and check that exactly those are parked",
        run: worker_trials::poison,
    },
    Command {
        name: "scan-trial",
        arguments: "[--files N] [--secrets N] [--kills N] [--seed N] [--save]",
        purpose: "plant secrets, scan them, kill scans at random moments, and compare the reports",
        run: worker_trials::scan,
    },
    Command {
        name: "soak",
        arguments: "[--seconds N] [--tenants N] [--save]",
        purpose: "resume and drain runs of many tenants for hours, and watch memory, descriptors \
                  and the store; --save writes the table of docs/reliability.md",
        run: worker_trials::soak,
    },
    Command {
        name: "terminal",
        arguments: worker_trials::TERMINAL_USAGE,
        purpose: "press Ctrl-C and Ctrl-Z on a terminal while children are started, and check that \
                  none is killed or stopped",
        run: worker_trials::terminal,
    },
    Command {
        name: "miri",
        arguments: "[FILTER]",
        purpose: "run the tests of the crates with unsafe code under Miri",
        run: miri::run,
    },
    Command {
        name: "deny",
        arguments: "",
        purpose: "check licences, versions and sources of every dependency",
        run: deny::run,
    },
    Command {
        name: "coverage",
        arguments: "[ARGUMENTS]",
        purpose: "measure line coverage with cargo-llvm-cov",
        run: coverage::run,
    },
    Command {
        name: "mutation",
        arguments: mutation::USAGE,
        purpose: "change the code in many small ways and see whether a test fails; --save writes \
                  the table of docs/reliability.md",
        run: mutation::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some(command) = arguments.first().and_then(|name| find(name)) else {
        return refuse(arguments.first());
    };
    match (command.run)(&arguments[1..]) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

/// Returns the command of that name.
fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Lists the commands; an unknown or missing command is a usage error.
fn refuse(name: Option<&String>) -> ExitCode {
    match name {
        Some(name) => eprintln!("error: there is no command `{name}`. The commands are:"),
        None => eprintln!("usage: cargo xtask COMMAND"),
    }
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        eprintln!("  {call:<30} {}", command.purpose);
    }
    ExitCode::from(EXIT_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_are_unique() {
        for (index, command) in COMMANDS.iter().enumerate() {
            let first = COMMANDS.iter().position(|other| other.name == command.name);
            assert_eq!(first, Some(index), "{} is listed twice", command.name);
        }
    }

    #[test]
    fn an_unknown_command_is_not_found() {
        assert!(find("tests").is_none());
        assert!(find("test").is_some());
    }
}
