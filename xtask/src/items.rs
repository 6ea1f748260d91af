//! The items of a Rust file: what is declared, where, how long it is, and whether it is public.
//!
//! This is no parser. It follows braces and the keywords that open items, which is enough for
//! rustfmt-formatted code, and it knows nothing of types or of what a macro expands to. What a
//! macro makes is seen through the `pub use` that exports it; the compiler vouches for the rest.

use crate::source::{Token, tokens};

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A struct, enum, union, trait or type alias.
    Type,
    Function,
    /// A constant or a static.
    Constant,
    Module,
    Variant,
    /// A name at the end of a `pub use`.
    Export,
}

/// One declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// The type or trait whose block it stands in.
    pub(crate) owner: Option<String>,
    /// Declared `pub`, or part of a trait or of a trait's implementation.
    pub(crate) is_public: bool,
    /// A test function.
    pub(crate) is_test: bool,
    /// The number of `#[case]` attributes of a parameterized test.
    pub(crate) cases: usize,
    /// Inside a module that exists for tests only.
    pub(crate) in_tests: bool,
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
}

impl Item {
    pub(crate) fn line_count(&self) -> usize {
        self.last_line - self.first_line + 1
    }
}

/// Finds the items of masked source text.
pub(crate) fn items(masked: &str) -> Vec<Item> {
    let mut finder = Finder { tokens: tokens(masked), ..Finder::default() };
    finder.run();
    finder.items
}

/// A block that is open at the current token.
#[derive(Clone, Default)]
struct Block {
    /// The type or trait whose `impl` or `trait` block this is.
    owner: Option<String>,
    /// Everything declared directly in it is as public as its trait.
    is_trait: bool,
    is_tests: bool,
    is_proptest: bool,
    /// The item that ends with this block.
    item: Option<usize>,
}

/// Walks over the tokens once, keeping the blocks that are open.
#[derive(Default)]
struct Finder<'a> {
    tokens: Vec<Token<'a>>,
    /// Index of the current token.
    at: usize,
    blocks: Vec<Block>,
    /// What the next `{` opens.
    next_block: Block,
    /// First words of the attributes seen since the last item.
    attributes: Vec<&'a str>,
    /// Whether a plain `pub` was seen since the last item.
    is_public: bool,
    items: Vec<Item>,
}

impl<'a> Finder<'a> {
    fn run(&mut self) {
        while self.at < self.tokens.len() {
            self.step();
            self.at += 1;
        }
    }

    /// Looks at one token. Handlers leave `at` on the last token they consumed.
    fn step(&mut self) {
        match self.text(0) {
            "#" => self.attribute(),
            "pub" => self.visibility(),
            "use" => self.import(),
            "struct" | "union" | "type" => self.declare(Kind::Type),
            "static" => self.declare(Kind::Constant),
            "const" => self.constant(),
            "enum" => self.enumeration(),
            "trait" => self.trait_block(),
            "impl" => self.impl_block(),
            "fn" => self.function(),
            "mod" => self.module(),
            "proptest" if self.text(1) == "!" => self.next_block.is_proptest = true,
            "{" => self.open(),
            "}" => self.close(),
            ";" => self.forget(),
            _ => {}
        }
    }

    /// The text of a token ahead; empty past the end, which matches no keyword.
    fn text(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    /// The line of the current token, or of the last one once all are consumed.
    fn line(&self) -> usize {
        let last = self.tokens.len() - 1;
        self.tokens[self.at.min(last)].line
    }

    /// Moves to the token that closes the bracket at the current one.
    fn skip_brackets(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return;
            }
            self.at += 1;
        }
    }

    /// Remembers the first word of `#[…]`; `#![…]` belongs to the file, not to the next item.
    fn attribute(&mut self) {
        let is_inner = self.text(1) == "!";
        self.at += if is_inner { 2 } else { 1 };
        if self.text(0) != "[" {
            self.at -= 1;
            return;
        }
        let start = self.at + 1;
        self.skip_brackets();
        let end = self.at.min(self.tokens.len());
        let words: Vec<&str> = self.tokens[start.min(end)..end].iter().map(|it| it.text).collect();
        if !is_inner {
            let is_cfg_test = words == ["cfg", "(", "test", ")"];
            let is_tokio_test = words.first() == Some(&"tokio") && words.contains(&"test");
            let name = match (is_cfg_test, is_tokio_test) {
                (true, _) => Some(&"cfg(test)"),
                (_, true) => Some(&"test"),
                _ => words.first(),
            };
            self.attributes.extend(name);
        }
    }

    /// `pub(crate)` and its like do not count as public.
    fn visibility(&mut self) {
        self.is_public = self.text(1) != "(";
        if !self.is_public {
            self.at += 1;
            self.skip_brackets();
        }
    }

    /// Records what a `pub use` exports: the words that no `::` follows.
    fn import(&mut self) {
        let is_public = self.is_public;
        while self.at < self.tokens.len() && self.text(0) != ";" {
            self.at += 1;
            let is_leaf = self.tokens.get(self.at).is_some_and(Token::is_word)
                && self.text(0) != "as"
                && !matches!(self.text(1), ":" | "as");
            if is_public && is_leaf {
                self.push(Kind::Export, self.text(0), true);
            }
        }
        self.forget();
    }

    /// An item that is a keyword and a name, with or without a body we need not look into.
    fn declare(&mut self, kind: Kind) {
        if self.at + 1 < self.tokens.len() && self.tokens[self.at + 1].is_word() {
            self.at += 1;
            self.push(kind, self.text(0), self.is_public);
        }
    }

    /// `const NAME`, unless it is `const fn` or a `const { }` block.
    fn constant(&mut self) {
        if !matches!(self.text(1), "fn" | "unsafe" | "async" | "extern" | "{") {
            self.declare(Kind::Constant);
        }
    }

    /// An enum with all its variants, so that its body needs no block.
    fn enumeration(&mut self) {
        self.declare(Kind::Type);
        let name = self.text(0);
        self.skip_to_body();
        if self.text(0) != "{" {
            return;
        }
        self.at += 1;
        while self.at < self.tokens.len() && self.text(0) != "}" {
            self.variant(name);
        }
        self.forget();
    }

    /// One variant with its attributes and payload, up to and with its comma.
    fn variant(&mut self, owner: &str) {
        while self.text(0) == "#" {
            self.at += 1;
            self.skip_brackets();
            self.at += 1;
        }
        let start = self.at;
        while self.at < self.tokens.len() && !matches!(self.text(0), "," | "}") {
            self.skip_brackets();
            self.at += 1;
        }
        if self.tokens.get(start).is_some_and(Token::is_word) {
            let name = self.tokens[start].text;
            let index = self.push(Kind::Variant, name, true);
            self.items[index].owner = Some(owner.to_owned());
        }
        if self.text(0) == "," {
            self.at += 1;
        }
    }

    /// A trait: what is declared in its block is as public as itself.
    fn trait_block(&mut self) {
        self.declare(Kind::Type);
        let owner = Some(self.text(0).to_owned());
        self.next_block = Block { owner, is_trait: true, ..Block::default() };
        self.skip_to_body();
        self.at -= 1;
    }

    /// `impl Type` or `impl Trait for Type`: the owner is the last word outside angle brackets.
    fn impl_block(&mut self) {
        let start = self.at + 1;
        self.skip_to_body();
        let header = &self.tokens[start..self.at.min(self.tokens.len())];
        let words = words_outside_angles(header);
        self.next_block = Block {
            owner: words.last().map(|&word| word.to_owned()),
            is_trait: words.contains(&"for"),
            ..Block::default()
        };
        self.at -= 1;
    }

    /// A function with a name; `fn(u8)` is only a type.
    fn function(&mut self) {
        if !self.tokens.get(self.at + 1).is_some_and(Token::is_word) {
            return;
        }
        // Read first: `push` ends the life of attributes.
        let cases = self.attributes.iter().filter(|&&name| name == "case").count();
        let is_test = self.attributes.iter().any(|name| matches!(*name, "test" | "rstest"))
            || self.blocks.last().is_some_and(|block| block.is_proptest);
        self.at += 1;
        let index = self.push(Kind::Function, self.text(0), self.is_public);
        self.items[index].is_test = is_test;
        self.items[index].cases = cases;
        // `impl Trait` among the arguments must not be taken for a block, so they are skipped.
        self.skip_to_body();
        self.items[index].last_line = self.line();
        self.next_block = Block { item: Some(index), ..Block::default() };
        self.at -= 1;
    }

    /// A module; a `;` after it clears the mark again, since then its body is another file.
    fn module(&mut self) {
        self.next_block.is_tests = self.attributes.contains(&"cfg(test)");
        self.declare(Kind::Module);
    }

    /// Moves to the `{` or `;` that ends a header, past everything in brackets.
    fn skip_to_body(&mut self) {
        while self.at < self.tokens.len() && !matches!(self.text(0), "{" | ";") {
            if matches!(self.text(0), "(" | "[") {
                self.skip_brackets();
            }
            self.at += 1;
        }
    }

    /// A block inherits nothing; `in_tests` looks at all blocks that are open.
    fn open(&mut self) {
        let block = std::mem::take(&mut self.next_block);
        self.blocks.push(block);
        self.forget();
    }

    /// The end of a block is the end of the function it belongs to. One brace too many is ignored.
    fn close(&mut self) {
        let line = self.line();
        if let Some(index) = self.blocks.pop().and_then(|block| block.item) {
            self.items[index].last_line = line;
        }
        self.forget();
    }

    /// Attributes and visibility belong to one item only.
    fn forget(&mut self) {
        self.attributes.clear();
        self.is_public = false;
        self.next_block = Block::default();
    }

    /// Records an item at the current token; the result is its index.
    fn push(&mut self, kind: Kind, name: &str, is_public: bool) -> usize {
        let block = self.blocks.last().cloned().unwrap_or_default();
        self.items.push(Item {
            kind,
            name: name.to_owned(),
            is_public: is_public || block.is_trait,
            owner: block.owner,
            is_test: false,
            cases: 0,
            in_tests: self.blocks.iter().any(|block| block.is_tests),
            first_line: self.line(),
            last_line: self.line(),
        });
        self.is_public = false;
        self.attributes.clear();
        self.items.len() - 1
    }
}

/// The words of an `impl` header that stand outside `<…>`, without its `where` clause.
fn words_outside_angles<'a>(header: &[Token<'a>]) -> Vec<&'a str> {
    let mut depth = 0_usize;
    let mut words = Vec::new();
    let mut previous = "";
    for token in header.iter().take_while(|token| token.text != "where") {
        match token.text {
            "<" => depth += 1,
            // The arrow of a function type is no bracket.
            ">" if previous != "-" => depth = depth.saturating_sub(1),
            _ if depth == 0 && token.is_word() => words.push(token.text),
            _ => {}
        }
        previous = token.text;
    }
    words
}

#[cfg(test)]
#[path = "items_tests.rs"]
mod items_tests;
