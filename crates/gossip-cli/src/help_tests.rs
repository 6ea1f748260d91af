//! Help of every command: short, with examples that parse, and the same in the reference.

use std::path::Path;

use clap::{Arg, Command, FromArgMatches as _};

use super::{command, examples};
use crate::args::Cli;

/// Lines of a terminal without its prompt.
const SHORT_HELP_LINES: usize = 40;

/// Environment variable that makes the test rewrite the reference.
const REWRITE: &str = "GOSSIP_REWRITE";

/// Calls `visit` with the path of every command.
fn each_command(command: &Command, path: &str, visit: &mut dyn FnMut(&Command, &str)) {
    visit(command, path);
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        each_command(below, format!("{path} {}", below.get_name()).trim(), visit);
    }
}

#[test]
fn short_help_fits_a_screen_and_has_no_variables() {
    let mut all = command(true).term_width(100);
    all.build();
    each_command(&all, "", &mut |command, path| {
        let help = command.clone().render_help().to_string();
        let lines = help.lines().count();
        assert!(lines <= SHORT_HELP_LINES, "{lines} lines: gossip {path} -h\n{help}");
        assert!(!help.contains("[env:"), "gossip {path} -h\n{help}");
        assert!(help.contains("Examples:"), "gossip {path} -h\n{help}");
    });
}

#[test]
fn every_command_has_three_examples_that_parse() {
    each_command(&command(false), "", &mut |_, path| {
        let lines = examples(path).unwrap_or_else(|| panic!("gossip {path} has no examples"));
        for line in lines {
            // What a shell does before it starts the command.
            let own = line.rsplit(" | ").next().unwrap();
            let own = own.split(" > ").next().unwrap();
            let own = own.split("$(").next().unwrap().trim();
            let own = if own == "gossip worker" { "gossip worker @last" } else { own };
            let words = own.split(' ').filter(|word| !word.is_empty());
            let parsed = command(false).try_get_matches_from(words);
            let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            let begins = format!("gossip {path}");
            assert!(line.contains(begins.trim()), "{line} is an example of gossip {path}");
        }
    });
}

#[test]
fn reference_is_what_the_commands_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md");
    let expected = reference();
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == expected, "docs/reference.md is out of date; set {REWRITE}=1 to rewrite it");
}

/// Formats all commands as a page of the documentation.
fn reference() -> String {
    let mut page = String::from(
        "# Command reference\n\n\
         Generated from the definition of the arguments: \
         `GOSSIP_REWRITE=1 cargo test -p gossip-cli reference` writes this page, \
         and the same test compares it.\n\
         [exec.md](exec.md) explains sources, commands and promises.\n",
    );
    let mut all = command(false);
    all.build();
    each_command(&all, "", &mut |command, path| {
        let title = format!("gossip {path}");
        page += &format!("\n## `{}`\n\n", title.trim());
        if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
            page += &format!("{}\n\n", sentence(&about.to_string()));
        }
        let usage = command.clone().render_usage().to_string();
        page += &format!("```text\n{}\n```\n", usage.trim());
        let is_listed = |arg: &&Arg| {
            !arg.is_hide_set()
                && !matches!(arg.get_id().as_str(), "help" | "version")
                && (path.is_empty() || !arg.is_global_set())
        };
        let listed: Vec<&Arg> = command.get_arguments().filter(is_listed).collect();
        if !listed.is_empty() {
            page += "\n| argument | variable | meaning |\n|---|---|---|\n";
        }
        for arg in listed {
            page += &row(arg);
        }
    });
    page
}

fn row(arg: &Arg) -> String {
    let value = arg
        .get_value_names()
        .filter(|_| arg.get_action().takes_values())
        .map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" "));
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => value.clone().unwrap_or_default(),
    };
    let name = match value.filter(|_| arg.get_long().is_some()) {
        Some(value) => format!("{name} {value}"),
        None => name,
    };
    let variable = arg.get_env().map_or_else(String::new, |name| format!("`{}`", name.display()));
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map_or_else(String::new, |help| sentence(&help.to_string()));
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|it| it.display().to_string()).collect();
    let default = match defaults.is_empty() || !arg.get_action().takes_values() {
        true => String::new(),
        false => format!(" (default: {})", defaults.join(" ")),
    };
    format!(
        "| `{}` | {variable} | {}{default} |\n",
        name.replace('|', "\\|"),
        help.replace('|', "\\|")
    )
}

/// Joins the lines of a text; paragraphs become sentences.
fn sentence(text: &str) -> String {
    text.split("\n\n").map(|part| part.trim().replace('\n', " ")).collect::<Vec<_>>().join(". ")
}

/// A completion names every command, and is accepted by its shell where that is installed.
#[test]
fn completions_name_every_command() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish]
    {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command(false), "gossip", &mut text);
        let text = String::from_utf8(text).unwrap();
        for name in ["exec", "worker", "why", "doctor", "run", "unpark"] {
            assert!(text.contains(name), "{shell}: {name}");
        }
        let program = shell.to_string();
        let checked = std::process::Command::new(&program).args(["-n", "-c", &text]).output();
        if let Ok(checked) = checked {
            assert!(checked.status.success(), "{program}: {checked:?}");
        }
    }
}
