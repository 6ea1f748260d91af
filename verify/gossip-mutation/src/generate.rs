//! Finds the places of a file that can be changed, and the changes.
//!
//! | place | changes |
//! |---|---|
//! | body of a function | return a value that its type makes obvious |
//! | `==` `!=` `<` `<=` `>` `>=` | a neighbour |
//! | `&&` and <code>\|\|</code>, `+` and `-`, `+=` and `-=` | the other |
//! | `!x` | `x` |
//! | condition of an `if`, guard of an arm | `true`, `false` |
//! | `if let`, `while` | `false` |
//! | operand of a chain with `let` | `true` |
//! | statement that is a call or an assignment | nothing |
//!
//! Tests, constants, macros and `Debug` have no mutants. Only one mutant is active in a process, so
//! the changed text is made of the original text of its operands.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Signature, Stmt, UnOp};

use crate::consts::{ConstFn, is_test_only};
use crate::rewrite::SWITCH;
use crate::values;

/// Characters of source that a change shows.
const SHOWN_MAX: usize = 60;

/// A change of one place.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// The path relative to the root.
    pub(crate) file: String,
    /// The function, with its type.
    pub(crate) function: String,
    /// The change, unique in the function.
    pub(crate) change: String,
    /// The place in the file.
    pub(crate) site: Range<usize>,
    /// Text before the place.
    pub(crate) before: String,
    /// Text after the place.
    pub(crate) after: String,
    /// The function whose body it is in, if it is declared `const`.
    pub(crate) const_fn: Option<ConstFn>,
}

impl Mutant {
    /// Returns the name that stays the same when lines move.
    pub(crate) fn identity(&self) -> String {
        let Self { file, function, change, .. } = self;
        format!("{file}: {function}: {change}")
    }

    /// Returns whether it leaves out a statement.
    pub(crate) fn is_deletion(&self) -> bool {
        self.before.starts_with("if !")
    }
}

/// Returns the mutants of a file, in the order of its text.
///
/// # Errors
///
/// If the text is not Rust.
pub(crate) fn mutants(file: &str, text: &str) -> Result<Vec<Mutant>, syn::Error> {
    let parsed = syn::parse_file(text)?;
    let mut finder = Finder { file, text, mutants: Vec::new(), owner: None, functions: Vec::new() };
    finder.visit_file(&parsed);
    let mut mutants = finder.mutants;
    let mut count: BTreeMap<(String, String), usize> = BTreeMap::new();
    for mutant in &mut mutants {
        let times = count.entry((mutant.function.clone(), mutant.change.clone())).or_default();
        *times += 1;
        if *times > 1 {
            mutant.change = format!("{} (number {times})", mutant.change);
        }
    }
    Ok(mutants)
}

/// A function that is being visited.
struct Function {
    name: String,
    const_fn: Option<ConstFn>,
}

struct Finder<'t> {
    file: &'t str,
    text: &'t str,
    mutants: Vec<Mutant>,
    /// The type of the present `impl`, or the present trait.
    owner: Option<String>,
    functions: Vec<Function>,
}

impl Finder<'_> {
    fn add(&mut self, site: Range<usize>, change: String, before: String, after: &str) {
        let Some(function) = self.functions.last() else { return };
        self.mutants.push(Mutant {
            file: self.file.to_owned(),
            function: function.name.clone(),
            change,
            site,
            before,
            after: after.to_owned(),
            const_fn: function.const_fn.clone(),
        });
    }

    fn source(&self, node: &impl Spanned) -> String {
        self.text[range(node)].to_owned()
    }

    /// Returns the beginning of the source on one line.
    fn shown(&self, node: &impl Spanned) -> String {
        let line = self.source(node).split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shown: String = line.chars().take(SHOWN_MAX).collect();
        if shown.len() < line.len() {
            shown.push('…');
        }
        format!("`{}`", shown.replace('`', "'"))
    }

    /// Chooses the first text if the mutant is active.
    fn choose(&mut self, site: Range<usize>, change: String, changed: &str) {
        let before = format!("(if {SWITCH} {{ {changed} }} else {{ ");
        self.add(site, change, before, " })");
    }

    fn make_true(&mut self, condition: &Expr) {
        let change = format!("{} becomes true", self.shown(condition));
        self.add(range(condition), change, format!("({SWITCH} || ("), "))");
    }

    fn make_false(&mut self, condition: &Expr) {
        let change = format!("{} becomes false", self.shown(condition));
        // A `let` may not be inside parentheses.
        match has_let(condition) {
            true => self.add(range(condition), change, format!("!{SWITCH} && "), ""),
            false => self.add(range(condition), change, format!("(!{SWITCH} && ("), "))"),
        }
    }

    fn condition(&mut self, condition: &Expr) {
        if matches!(condition, Expr::Lit(_) | Expr::Macro(_)) && !is_matches(condition) {
            return;
        }
        if has_let(condition) {
            self.make_false(condition);
            self.operands_of_chain(condition);
            return;
        }
        self.make_true(condition);
        self.make_false(condition);
    }

    fn operands_of_chain(&mut self, condition: &Expr) {
        match condition {
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
                self.operands_of_chain(&binary.left);
                self.operands_of_chain(&binary.right);
            }
            Expr::Let(_) => {}
            _ => self.make_true(condition),
        }
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let name = signature.ident.to_string();
        let owner = self.owner.clone().unwrap_or_default();
        let const_fn = signature.constness.as_ref().map(|_| ConstFn::new(&owner, &name));
        let path = if owner.is_empty() { name.clone() } else { format!("{owner}::{name}") };
        self.functions.push(Function { name: path, const_fn });
        let open = block.brace_token.span.open().byte_range().end;
        let body: String = block.stmts.iter().map(|stmt| self.source(stmt)).collect();
        // The default of a type would call itself.
        let is_default = |value: &String| name == "default" && value.contains("default()");
        for value in values::of_return(&signature.output) {
            if body == value || (body.is_empty() && value == "()") || is_default(&value) {
                continue;
            }
            let before = format!(" if {SWITCH} {{ return {value}; }} ");
            self.add(open..open, format!("the body becomes `{value}`"), before, "");
        }
        visit::visit_block(self, block);
        self.functions.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let is_debug = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if is_test_only(&item.attrs) || is_debug.is_some_and(|it| it.ident == "Debug") {
            return;
        }
        let outer = self.owner.replace(crate::consts::type_name(&item.self_ty));
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let outer = self.owner.replace(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owner = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            let outer = self.owner.take();
            self.function(&item.sig, &item.block);
            self.owner = outer;
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    // The compiler evaluates these, and cannot read a switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let (left, right) = (self.source(&binary.left), self.source(&binary.right));
            let operator = self.source(&binary.op);
            for other in neighbours(&binary.op) {
                let change = format!("{}: `{operator}` becomes `{other}`", self.shown(binary));
                let changed = if other.ends_with("-=") || other.ends_with("+=") {
                    format!("{left} {other} {right}")
                } else {
                    format!("({left}) {other} ({right})")
                };
                self.choose(range(binary), change, &changed);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, UnOp::Not(_)) {
            let (change, operand) = (self.shown(unary), self.source(&unary.expr));
            self.choose(range(unary), format!("{change} loses its `!`"), &operand);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_if(&mut self, it: &'ast syn::ExprIf) {
        self.condition(&it.cond);
        visit::visit_expr_if(self, it);
    }

    fn visit_expr_while(&mut self, it: &'ast syn::ExprWhile) {
        self.make_false(&it.cond);
        visit::visit_expr_while(self, it);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && is_effect(expr)
        {
            let change = format!("{} is left out", self.shown(expr));
            self.add(range(stmt), change, format!("if !{SWITCH} {{ "), " }");
        }
        visit::visit_stmt(self, stmt);
    }
}

fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

fn neighbours(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        _ => &[],
    }
}

/// Returns whether a chain of `&&` has a `let`.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_matches(expr: &Expr) -> bool {
    matches!(expr, Expr::Macro(it) if it.mac.path.is_ident("matches"))
}

/// Returns whether an expression is evaluated for its effect.
fn is_effect(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => is_assignment(&binary.op),
        Expr::Try(inner) => is_effect(&inner.expr),
        Expr::Await(inner) => is_effect(&inner.base),
        _ => false,
    }
}

fn is_assignment(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
