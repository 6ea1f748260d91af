//! Functions that are `const`, and which of them the compiler must be able to evaluate.
//!
//! A `const fn` cannot read a switch. In the copy all are declared without `const`, except those
//! that a constant needs, directly or through others. Their mutants are counted, not generated.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Signature, Type};

/// A function by its type and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConstFn {
    /// The type of its `impl`; empty for a free function.
    pub(crate) owner: String,
    pub(crate) name: String,
}

impl ConstFn {
    pub(crate) fn new(owner: &str, name: &str) -> Self {
        Self { owner: owner.to_owned(), name: name.to_owned() }
    }

    /// Reads the path that the compiler shows, such as `store::key::Key::len` or `Id::<T>::new`.
    pub(crate) fn of_path(path: &str) -> Self {
        let mut depth = 0_usize;
        let mut plain = String::new();
        for character in path.chars() {
            match character {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                _ if depth == 0 => plain.push(character),
                _ => {}
            }
        }
        let mut segments = plain.rsplit("::").filter(|segment| !segment.is_empty());
        let name = segments.next().unwrap_or_default();
        Self::new(segments.next().unwrap_or_default(), name)
    }

    /// Returns whether a use may mean this function. A use names a type, a module, or neither.
    pub(crate) fn is_used_as(&self, used: &Self) -> bool {
        let is_owner = used.owner == self.owner || used.owner.is_empty() || self.owner.is_empty();
        self.name == used.name && is_owner
    }
}

/// A declaration of a `const fn`.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) function: ConstFn,
    /// Where its `const` is.
    pub(crate) token: Range<usize>,
    uses: BTreeSet<ConstFn>,
}

/// The constants and `const` functions of a file.
#[derive(Debug, Default)]
pub(crate) struct Consts {
    pub(crate) declared: Vec<Declared>,
    /// Functions that constants of the file use.
    used: BTreeSet<ConstFn>,
    owner: String,
}

/// Returns the constants of a file.
///
/// # Errors
///
/// If the text is not Rust.
pub(crate) fn consts(text: &str) -> Result<Consts, syn::Error> {
    let mut found = Consts::default();
    found.visit_file(&syn::parse_file(text)?);
    Ok(found)
}

/// Returns the functions of `all` that must stay `const`: those that constants use or that are
/// `kept`, and those that these call.
pub(crate) fn closure(all: &[&Consts], kept: &BTreeSet<ConstFn>) -> BTreeSet<ConstFn> {
    let mut wanted: Vec<&ConstFn> = all.iter().flat_map(|file| &file.used).chain(kept).collect();
    let mut stays = BTreeSet::new();
    while let Some(used) = wanted.pop() {
        for declared in all.iter().flat_map(|file| &file.declared) {
            if declared.function.is_used_as(used) && stays.insert(declared.function.clone()) {
                wanted.extend(&declared.uses);
            }
        }
    }
    stays
}

impl Consts {
    fn constant(&mut self, tokens: TokenStream) {
        uses(tokens, &self.owner, &mut self.used);
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        if let Some(token) = &signature.constness {
            let mut calls = BTreeSet::new();
            uses(tokens_of(block), &self.owner, &mut calls);
            let function = ConstFn::new(&self.owner, &signature.ident.to_string());
            let token = token.span().byte_range();
            self.declared.push(Declared { function, token, uses: calls });
        }
        visit::visit_block(self, block);
    }
}

impl<'ast> Visit<'ast> for Consts {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let outer = std::mem::replace(&mut self.owner, type_name(&item.self_ty));
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let outer = std::mem::take(&mut self.owner);
        self.function(&item.sig, &item.block);
        self.owner = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(tokens_of(&item.expr));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(tokens_of(&item.expr));
    }

    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        if let Some((_, expr)) = &item.default {
            self.constant(tokens_of(expr));
        }
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.constant(tokens_of(&item.expr));
    }

    fn visit_expr_const(&mut self, it: &'ast syn::ExprConst) {
        self.constant(tokens_of(&it.block));
    }

    fn visit_type_array(&mut self, it: &'ast syn::TypeArray) {
        self.constant(tokens_of(&it.len));
    }

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.constant(tokens_of(&it.len));
        self.visit_expr(&it.expr);
    }

    fn visit_variant(&mut self, it: &'ast syn::Variant) {
        if let Some((_, expr)) = &it.discriminant {
            self.constant(tokens_of(expr));
        }
    }
}

fn tokens_of(node: &impl quote::ToTokens) -> TokenStream {
    node.to_token_stream()
}

/// Adds what may be a call: a name that a parenthesis, `::<`, or the end of a path follows.
fn uses(tokens: TokenStream, owner: &str, to: &mut BTreeSet<ConstFn>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let is_colon = |at: usize| matches!(&trees[at], TokenTree::Punct(it) if it.as_char() == ':');
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => uses(group.stream(), owner, to),
            TokenTree::Ident(name) => {
                let is_path = at >= 3 && is_colon(at - 1) && is_colon(at - 2);
                let before = match is_path.then(|| &trees[at - 3]) {
                    Some(TokenTree::Ident(before)) if before == "Self" => owner.to_owned(),
                    Some(TokenTree::Ident(before)) => before.to_string(),
                    _ => String::new(),
                };
                let is_call = matches!(trees.get(at + 1), Some(TokenTree::Group(group))
                    if group.delimiter() == Delimiter::Parenthesis);
                if is_path || is_call {
                    to.insert(ConstFn::new(&before, &name.to_string()));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns the last name of a type.
pub(crate) fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().map_or_else(String::new, |it| it.ident.to_string())
        }
        Type::Reference(reference) => type_name(&reference.elem),
        _ => String::new(),
    }
}

/// Returns whether an item exists in tests only.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_cfg_test = path.is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test");
        path.is_ident("test") || is_cfg_test
    })
}

/// Returns the modules of a file that exist in tests only, as paths without `.rs`.
///
/// # Errors
///
/// If the text is not Rust.
pub(crate) fn test_modules(file: &str, text: &str) -> Result<Vec<String>, syn::Error> {
    let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
    let stem = name.trim_end_matches(".rs");
    let below = match stem {
        "lib" | "main" | "mod" => directory.to_owned(),
        _ => format!("{directory}/{stem}"),
    };
    let parsed = syn::parse_file(text)?;
    let modules = parsed.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test_only(&module.attrs) => {
            Some(format!("{below}/{}", module.ident))
        }
        _ => None,
    });
    Ok(modules.collect())
}
