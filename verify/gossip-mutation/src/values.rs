//! Values that a function can return instead of running its body.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// Returns expressions of a return type; none if no value is obvious. The compiler decides whether
/// a type has a default.
pub(crate) fn of_return(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, ty) => of_type(ty),
    }
}

fn of_type(ty: &Type) -> Vec<String> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => texts(&["()"]),
        Type::Reference(reference) if reference.mutability.is_none() => match &*reference.elem {
            Type::Slice(_) => texts(&["&[]"]),
            Type::Path(path) if path.path.is_ident("str") => texts(&["\"\""]),
            _ => Vec::new(),
        },
        Type::Path(path) => path.path.segments.last().map_or_else(Vec::new, of_segment),
        Type::Paren(inner) => of_type(&inner.elem),
        Type::Group(inner) => of_type(&inner.elem),
        _ => Vec::new(),
    }
}

fn of_segment(segment: &syn::PathSegment) -> Vec<String> {
    let first = || match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(ty)) => of_type(ty),
            _ => Vec::new(),
        },
        PathArguments::None | PathArguments::Parenthesized(_) => texts(&["()"]),
    };
    let inside = |name: &str| first().into_iter().map(|it| format!("{name}({it})")).collect();
    match segment.ident.to_string().as_str() {
        "bool" => texts(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => texts(&["0", "1"]),
        "Result" => inside("Ok"),
        "Option" => {
            let mut all = texts(&["None"]);
            all.extend(inside("Some"));
            all
        }
        "Vec" => texts(&["Vec::new()"]),
        "String" => texts(&["String::new()"]),
        "Ordering" => texts(&["std::cmp::Ordering::Equal"]),
        _ => texts(&["Default::default()"]),
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_type_has_its_obvious_values() {
        for (signature, expected) in [
            ("fn f()", "()"),
            ("fn f() -> bool", "true false"),
            ("fn f() -> Result<(), E>", "Ok(())"),
            ("fn f() -> fmt::Result", "Ok(())"),
            ("fn f() -> Option<u8>", "None Some(0) Some(1)"),
            ("fn f() -> Result<Option<&T>, E>", "Ok(None)"),
            ("fn f() -> &'static str", "\"\""),
            ("fn f() -> Thing", "Default::default()"),
            ("fn f() -> &T", ""),
            ("fn f() -> impl Fn()", ""),
            ("fn f() -> !", ""),
        ] {
            let signature: syn::Signature = syn::parse_str(signature).unwrap();
            assert_eq!(of_return(&signature.output).join(" "), expected, "{}", signature.ident);
        }
    }
}
