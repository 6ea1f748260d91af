//! Help, completions and man pages, from the definition of the arguments.
//!
//! `-h` is for those who forgot a name: the usual options and three examples. `--help` has every
//! option with its environment variable, and `docs/reference.md` has all commands.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Code, Failure};
use crate::output;

/// Options of the commands that process items, which `-h` lists; `--help` lists all.
const USUAL: [&str; 21] = [
    "sources",
    "baseline",
    "write_baseline",
    "fail_on",
    "rules",
    "show_secrets",
    "source",
    "command",
    "run",
    "jobs",
    "tries",
    "halt",
    "ok_status",
    "restart",
    "replace",
    "name",
    "plan",
    "stream",
    "store",
    "output",
    "help",
];

/// Commands with more options than a short help has room for.
const LARGE: [&str; 5] = ["exec", "create", "worker", "scan", "findings"];

/// Global options that the short help of `gossip` alone leaves to `--help`: the list of commands
/// takes most of a screen.
const RARE: [&str; 4] = ["tenant", "color", "quiet", "verbose"];

/// Three examples of each command.
const EXAMPLES: [(&str, [&str; 3]); 56] = [
    ("", ["gossip exec photos -- jpegoptim {}", "gossip run list", "gossip why @last"]),
    (
        "exec",
        [
            "gossip exec . -- wc -c {}",
            "gossip exec lines:urls.txt -j 8 -- curl -sSfO {}",
            "find . -print0 | gossip exec -0 - -- gzip {}",
        ],
    ),
    ("worker", ["gossip worker nightly", "gossip worker @last -j 16", "gossip worker list"]),
    (
        "worker list",
        ["gossip worker list", "gossip worker list --sample 5s", "gossip worker list -o wide"],
    ),
    ("why", ["gossip why", "gossip why nightly", "gossip why @last photos/a.jpg"]),
    (
        "doctor",
        [
            "gossip doctor",
            "gossip doctor --store etcd://10.0.0.1:2379/prod",
            "gossip doctor -o json",
        ],
    ),
    (
        "verify",
        [
            "gossip verify proof.cert",
            "gossip verify proof.cert --source photos",
            "gossip run export @last | gossip verify -",
        ],
    ),
    (
        "completions",
        [
            "gossip completions bash > ~/.local/share/bash-completion/completions/gossip",
            "gossip completions zsh > ~/.zfunc/_gossip",
            "gossip completions fish > ~/.config/fish/completions/gossip.fish",
        ],
    ),
    (
        "scan",
        [
            "gossip scan .",
            "gossip scan git:. -o sarif > findings.sarif",
            "gossip scan . --baseline known.txt --fail-on findings",
        ],
    ),
    (
        "findings",
        [
            "gossip findings @last",
            "gossip findings @last -o jsonl",
            "gossip findings @last -o sarif",
        ],
    ),
    ("rules", ["gossip rules list", "gossip rules show github-pat", "gossip rules check my.toml"]),
    (
        "rules list",
        ["gossip rules list", "gossip rules list -o json", "gossip rules list --rules my.toml"],
    ),
    (
        "rules show",
        [
            "gossip rules show github-pat",
            "gossip rules show github-pat -o json",
            "gossip rules show my-rule --rules my.toml",
        ],
    ),
    (
        "rules check",
        [
            "gossip rules check my.toml",
            "gossip rules check rules/*.toml",
            "gossip rules check my.toml -o json",
        ],
    ),
    (
        "rules test",
        [
            "gossip rules test",
            "gossip rules test my-rule --rules my.toml",
            "gossip rules test -o json",
        ],
    ),
    ("watch", ["gossip watch", "gossip watch @last", "gossip watch nightly --color never"]),
    ("map", ["gossip map @last", "gossip map nightly --svg map.svg", "gossip map @last -o json"]),
    (
        "events",
        [
            "gossip events @last",
            "gossip events nightly --follow",
            "gossip events @last --since 10m -o json",
        ],
    ),
    (
        "serve",
        [
            "gossip serve",
            "gossip serve --store etcd://10.0.0.1:2379/team",
            "gossip serve --listen 10.0.0.5:7717 --token-file tokens --allow-host gossip.example",
        ],
    ),
    ("demo", ["gossip demo", "gossip demo --color always", "gossip demo -v"]),
    ("man", ["gossip man", "gossip man run list", "gossip man --to ~/.local/share/man/man1"]),
    ("run", ["gossip run list", "gossip run show @last", "gossip run cancel nightly"]),
    (
        "run create",
        [
            "gossip run create photos -- jpegoptim {}",
            "gossip run create range:0..1000 --name squares -- ./square.sh {}",
            "gossip worker $(gossip run create lines:urls.txt -- curl -sSfO {})",
        ],
    ),
    ("run list", ["gossip run list", "gossip run list --active", "gossip run list -o wide"]),
    (
        "run show",
        ["gossip run show @last", "gossip run show nightly", "gossip run show 3f -o json"],
    ),
    ("run pause", ["gossip run pause @last", "gossip run pause nightly", "gossip run pause 3f"]),
    (
        "run resume",
        ["gossip run resume @last", "gossip run resume nightly", "gossip run resume 3f"],
    ),
    (
        "run cancel",
        ["gossip run cancel @last", "gossip run cancel nightly", "gossip run cancel 3f"],
    ),
    ("run fail", ["gossip run fail @last", "gossip run fail nightly", "gossip run fail 3f"]),
    (
        "run export",
        [
            "gossip run export @last > proof.cert",
            "gossip run export nightly --to proof.cert",
            "gossip run export @last --key-file key --to proof.cert",
        ],
    ),
    (
        "run verify",
        [
            "gossip run verify @last",
            "gossip run verify nightly --source",
            "gossip run verify 3f -o json",
        ],
    ),
    ("run rm", ["gossip run rm nightly", "gossip run rm 3f", "gossip run rm 3f --damaged"]),
    (
        "shard",
        ["gossip shard list @last", "gossip shard show @last 1", "gossip shard unpark @last --all"],
    ),
    (
        "shard list",
        [
            "gossip shard list @last",
            "gossip shard list nightly --parked",
            "gossip shard list @last -o wide",
        ],
    ),
    (
        "shard show",
        [
            "gossip shard show @last 1",
            "gossip shard show nightly 9c",
            "gossip shard show @last 1 -o json",
        ],
    ),
    (
        "shard unpark",
        [
            "gossip shard unpark @last --all",
            "gossip shard unpark nightly 9c",
            "gossip shard unpark @last 1",
        ],
    ),
    (
        "shard repair",
        [
            "gossip shard repair @last 1",
            "gossip shard repair nightly 9c",
            "gossip shard repair 3f 2",
        ],
    ),
    (
        "shard split",
        [
            "gossip shard split @last 1",
            "gossip shard split @last 1 --at photos/m",
            "gossip shard split nightly 9c",
        ],
    ),
    (
        "shard release",
        [
            "gossip shard release @last 1",
            "gossip shard release @last 1 --force",
            "gossip shard release nightly 9c",
        ],
    ),
    ("handoff", ["gossip handoff list", "gossip handoff workers", "gossip handoff start @last 1"]),
    (
        "handoff start",
        [
            "gossip handoff start @last 1",
            "gossip handoff start @last 1 --to 9b85",
            "gossip handoff start nightly 9c",
        ],
    ),
    (
        "handoff list",
        ["gossip handoff list", "gossip handoff list --active", "gossip handoff list -o json"],
    ),
    (
        "handoff show",
        [
            "gossip handoff show m-1-0",
            "gossip handoff show m-1-0 -o json",
            "gossip handoff show m-2-1",
        ],
    ),
    (
        "handoff rollback",
        [
            "gossip handoff rollback m-1-0",
            "gossip handoff rollback m-2-1",
            "gossip handoff rollback m-1-0 -v",
        ],
    ),
    (
        "handoff workers",
        [
            "gossip handoff workers",
            "gossip handoff workers -o json",
            "gossip handoff workers --tenant team",
        ],
    ),
    (
        "tenant",
        [
            "gossip tenant limit",
            "gossip tenant limit team",
            "gossip tenant limit team --shards 500",
        ],
    ),
    (
        "tenant limit",
        [
            "gossip tenant limit",
            "gossip tenant limit team --shards 500",
            "gossip tenant limit team --shards default",
        ],
    ),
    ("store", ["gossip store stats", "gossip store backup copy.db", "gossip store upgrade"]),
    (
        "store init",
        [
            "gossip store init",
            "gossip store init --store postgres://gossip@db.example/work?ca=ca.pem",
            "gossip store init --durability replicated",
        ],
    ),
    (
        "store stats",
        [
            "gossip store stats",
            "gossip store stats --store postgres://gossip@localhost/work",
            "gossip store stats -o json",
        ],
    ),
    (
        "store backup",
        [
            "gossip store backup copy.db",
            "gossip store backup /backup/gossip.db",
            "gossip store backup copy.db --store sqlite:state.db",
        ],
    ),
    (
        "store restored",
        [
            "gossip store restored",
            "gossip store restored --only-tenant",
            "gossip store restored --store etcd://10.0.0.1:2379/prod",
        ],
    ),
    (
        "store upgrade",
        [
            "gossip store upgrade",
            "gossip store upgrade --wait 2m",
            "gossip store upgrade --store sqlite:state.db",
        ],
    ),
    ("failed", ["gossip failed @last", "gossip failed nightly -o json", "gossip failed 3f"]),
    (
        "retry",
        [
            "gossip retry @last --all",
            "gossip retry nightly photos/a.jpg",
            "gossip retry @last --status 22",
        ],
    ),
    (
        "events",
        [
            "gossip events @last",
            "gossip events nightly --follow",
            "gossip events @last --since 10m",
        ],
    ),
];

/// Returns the definition of all commands; `brief` for `-h`.
pub(crate) fn command(brief: bool) -> Command {
    adapted(Cli::command(), "", brief)
}

/// Returns whether the arguments of this process ask for the short help.
pub(crate) fn asks_for_brief() -> bool {
    let words = std::env::args_os().skip(1).take_while(|word| word != "--");
    words.into_iter().any(|word| word == "-h")
}

fn adapted(command: Command, path: &str, brief: bool) -> Command {
    let name = command.get_name().to_owned();
    let (is_large, is_root) = (LARGE.contains(&name.as_str()), path.is_empty());
    let command = command.disable_help_subcommand(is_root && brief);
    let command = command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let is_usual = USUAL.contains(&id);
        // Values of variables are noise, and may be secret.
        let is_hidden = is_large && !is_usual || is_root && RARE.contains(&id);
        let hides_values = is_root && brief && id == "output";
        let arg = if hides_values { arg.hide_possible_values(true) } else { arg };
        arg.hide_env_values(true).hide_env(brief).hide_short_help(is_hidden)
    });
    let command = match examples(path) {
        Some(lines) => {
            let examples = format!("Examples:\n  {}", lines.join("\n  "));
            let long = match command.get_after_long_help() {
                Some(text) => format!("{text}\n\n{examples}"),
                None => examples.clone(),
            };
            command.after_help(examples).after_long_help(long)
        }
        None => command,
    };
    let below: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    below.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |below| adapted(below, path.trim(), brief))
    })
}

fn examples(path: &str) -> Option<[&'static str; 3]> {
    EXAMPLES.iter().find(|(of, _)| *of == path).map(|(_, lines)| *lines)
}

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(false), "gossip", &mut text);
    output::bytes(&text)?;
    Ok(Code::Complete)
}

/// Prints the man page of a command, or writes those of all commands to a directory.
pub(crate) fn man(words: &[String], to: Option<&Path>) -> Result<Code, Failure> {
    let unwritten = |error: io::Error| {
        Failure::new(Code::Internal, "the man pages cannot be written").why(error)
    };
    let all = command(false);
    if let Some(directory) = to {
        std::fs::create_dir_all(directory).map_err(unwritten)?;
        clap_mangen::generate_to(all, directory).map_err(unwritten)?;
        return Ok(Code::Complete);
    }
    let mut found = &all;
    for word in words {
        found = found.find_subcommand(word).ok_or_else(|| {
            Failure::new(Code::Usage, format!("no such command: {}", words.join(" ")))
                .next("list the commands: gossip --help")
        })?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(found.clone()).render(&mut text).map_err(unwritten)?;
    output::bytes(&text)?;
    Ok(Code::Complete)
}

#[cfg(test)]
#[path = "help_tests.rs"]
mod tests;
