//! The configurations and mutations of the specification, parsed from its files.
//!
//! A configuration is a `.cfg` file: its first comment states its purpose, and it lists the laws
//! that it checks. A mutation is a definition under a comment of the form
//!
//! ```text
//! \* MUTATION of Definition in configuration breaks Law
//! \* MUTATION of Definition in configuration breaks Law without OtherLaw
//! ```
//!
//! Nothing here runs TLC or reads a file; `cargo xtask tidy` uses it as well.

use crate::workspace::File;

/// The directory of the specification.
pub(crate) const DIRECTORY: &str = "specs/coordination";

const MUTATION: &str = "\\* MUTATION of ";
const COMMENT: &str = "\\* ";

/// The module for TLC, by the specification formula of a configuration.
const MODULES: [(&str, &str); 2] = [("Spec", "MC"), ("LiveSpec", "Liveness")];

/// All configurations and mutations.
#[derive(Debug)]
pub(crate) struct Specification {
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) mutations: Vec<Mutation>,
    /// Changes with everything that affects TLC, not with comments.
    pub(crate) fingerprint: u64,
}

/// A small configuration of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) name: String,
    /// Its purpose.
    pub(crate) purpose: String,
    pub(crate) module: String,
    /// The laws it checks, in TLC's order.
    pub(crate) laws: Vec<String>,
    /// The whole file.
    pub(crate) text: String,
}

/// A deliberate bug that a law must detect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// The definition that is inserted.
    pub(crate) name: String,
    /// The definition that it replaces.
    pub(crate) of: String,
    pub(crate) configuration: String,
    pub(crate) law: String,
    /// A law that is not checked, because it would detect the bug sooner.
    pub(crate) without: Option<String>,
    /// A description of the bug.
    pub(crate) story: String,
    /// The module that defines it.
    pub(crate) module: String,
}

impl Specification {
    /// Parses the files below [`DIRECTORY`]; others are ignored.
    ///
    /// # Errors
    ///
    /// Describes the text that cannot be parsed, and its location.
    pub(crate) fn parse(files: &[File]) -> Result<Self, String> {
        let prefix = format!("{DIRECTORY}/");
        let ours: Vec<&File> = files.iter().filter(|it| it.path.starts_with(&prefix)).collect();
        let of_kind = |kind: &str| {
            let files: Vec<&File> =
                ours.iter().copied().filter(|it| it.path.ends_with(kind)).collect();
            files
        };
        let (modules, worlds) = (of_kind(".tla"), of_kind(".cfg"));
        let configurations =
            worlds.iter().map(|file| Configuration::parse(file)).collect::<Result<Vec<_>, _>>()?;
        let mut mutations = Vec::new();
        for module in &modules {
            mutations.extend(mutations_of(module)?);
        }
        let specification = Self {
            configurations,
            mutations,
            fingerprint: fingerprint(modules.iter().chain(&worlds).map(|file| file.text.as_str())),
        };
        specification.check(&modules)?;
        Ok(specification)
    }

    /// Returns the configuration of a mutation with the mutation inserted.
    pub(crate) fn mutated(&self, mutation: &Mutation) -> String {
        let Mutation { name, of, without, .. } = mutation;
        let configuration = self.configuration(&mutation.configuration);
        let text = configuration.map_or("", |it| it.text.as_str());
        let kept = text.lines().map(|line| match without {
            Some(law) => without_word(line, law),
            None => line.to_owned(),
        });
        let kept: Vec<String> = kept.collect();
        format!("{}\nCONSTANT {of} <- {name}\n", kept.join("\n"))
    }

    /// Returns every law that some configuration checks, in order.
    pub(crate) fn laws(&self) -> Vec<&str> {
        let mut laws: Vec<&str> = Vec::new();
        for law in self.configurations.iter().flat_map(|it| &it.laws) {
            if !laws.contains(&law.as_str()) {
                laws.push(law);
            }
        }
        laws
    }

    fn configuration(&self, name: &str) -> Option<&Configuration> {
        self.configurations.iter().find(|it| it.name == name)
    }

    /// Checks that mutations refer to existing definitions, and that a mutation breaks every law: a
    /// law that nothing can break proves nothing.
    fn check(&self, modules: &[&File]) -> Result<(), String> {
        for mutation in &self.mutations {
            self.check_mutation(mutation, modules)?;
        }
        let is_broken = |law: &str| self.mutations.iter().any(|it| it.law == law);
        match self.laws().into_iter().find(|law| !is_broken(law)) {
            Some(law) => Err(format!("no mutation breaks {law}")),
            None => Ok(()),
        }
    }

    fn check_mutation(&self, mutation: &Mutation, modules: &[&File]) -> Result<(), String> {
        let Mutation { name, of, law, without, .. } = mutation;
        let Some(configuration) = self.configuration(&mutation.configuration) else {
            return Err(format!("{name}: there is no configuration {}", mutation.configuration));
        };
        let laws = [Some(law), without.as_ref()];
        if let Some(law) = laws.into_iter().flatten().find(|law| !configuration.laws.contains(law))
        {
            return Err(format!("{name}: {} does not check {law}", configuration.name));
        }
        let parameters = |definition: &str| {
            let lines = modules.iter().flat_map(|module| module.text.lines());
            lines.filter_map(|line| parameters(line, definition)).next()
        };
        if parameters(of).is_none() || parameters(of) != parameters(name) {
            return Err(format!(
                "{name}: {of} is not defined, or has another number of parameters"
            ));
        }
        let twice = self.mutations.iter().filter(|it| it.name == *name).count() > 1;
        if twice { Err(format!("{name} is defined twice")) } else { Ok(()) }
    }
}

impl Configuration {
    fn parse(file: &File) -> Result<Self, String> {
        let name = file.name().trim_end_matches(".cfg").to_owned();
        let purpose = comment(file.text.lines());
        let section = |word: &str| words_after(&file.text, word);
        let formula = section("SPECIFICATION").into_iter().next().unwrap_or_default();
        let module = MODULES.iter().find(|(of, _)| *of == formula);
        let Some((_, module)) = module else {
            return Err(format!("{}: unknown specification formula {formula}", file.path));
        };
        let mut laws = section("INVARIANTS");
        laws.extend(section("PROPERTIES"));
        if purpose.is_empty() || laws.is_empty() {
            return Err(format!("{}: a comment and laws are required", file.path));
        }
        Ok(Self { name, purpose, module: (*module).to_owned(), laws, text: file.text.clone() })
    }
}

/// Returns the mutations that a module defines.
fn mutations_of(module: &File) -> Result<Vec<Mutation>, String> {
    let lines: Vec<&str> = module.text.lines().collect();
    let marked = lines.iter().enumerate().filter(|(_, line)| line.starts_with(MUTATION));
    let parsed = marked.map(|(index, _)| {
        let name = module.name().trim_end_matches(".tla");
        mutation(name, &lines[index..])
            .ok_or_else(|| format!("{}:{}: not understood", module.path, index + 1))
    });
    parsed.collect()
}

/// Parses a mutation from the lines that start with its mark.
fn mutation(module: &str, lines: &[&str]) -> Option<Mutation> {
    let words: Vec<&str> = lines.first()?.strip_prefix(MUTATION)?.split(' ').collect();
    let (of, configuration, law, without) = match words.as_slice() {
        [of, "in", world, "breaks", law] => (of, world, law, None),
        [of, "in", world, "breaks", law, "without", other] => (of, world, law, Some(*other)),
        _ => return None,
    };
    let definition = lines.iter().find(|line| !line.starts_with(COMMENT))?;
    let name: String = definition.chars().take_while(|c| c.is_alphanumeric()).collect();
    Some(Mutation {
        name,
        of: (*of).to_owned(),
        configuration: (*configuration).to_owned(),
        law: (*law).to_owned(),
        without: without.map(str::to_owned),
        story: comment(lines[1..].iter().copied()),
        module: module.to_owned(),
    })
}

/// Returns the leading comment of the lines as one sentence.
fn comment<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix(COMMENT)).collect();
    lines.join(" ")
}

/// Returns the words of a section of a configuration, which starts with `word` and ends at the next
/// word at the start of a line.
fn words_after(text: &str, word: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(word));
    let first = lines.next().and_then(|line| line.strip_prefix(word)).unwrap_or_default();
    let rest = lines.take_while(|line| line.starts_with(' '));
    let words = std::iter::once(first).chain(rest).flat_map(str::split_whitespace);
    words.map(str::to_owned).collect()
}

/// Returns the line without one of its words.
fn without_word(line: &str, word: &str) -> String {
    let words: Vec<&str> = line.split(' ').filter(|it| *it != word).collect();
    words.join(" ")
}

/// Returns the number of parameters if the line defines `name`.
fn parameters(line: &str, name: &str) -> Option<usize> {
    let rest = line.strip_prefix(name)?;
    if rest.starts_with(" ==") {
        return Some(0);
    }
    let (list, after) = rest.strip_prefix('(')?.split_once(')')?;
    after.starts_with(" ==").then(|| list.split(',').count())
}

/// Returns FNV-1a over everything except white space and comments; comments about mutations count.
fn fingerprint<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01B3;
    let lines = texts.flat_map(str::lines).map(str::trim);
    let is_comment = |line: &str| line.starts_with("\\*") || line.starts_with("(*");
    let code = lines.filter(|line| line.starts_with(MUTATION) || !is_comment(line));
    let code = code.map(|line| line.split(" \\* ").next().unwrap_or_default());
    let bytes = code.flat_map(str::bytes).filter(|byte| !byte.is_ascii_whitespace());
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod spec_tests;
