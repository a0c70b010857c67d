//! `${NAME}`, `${NAME:-default}`, `${NAME:?message}` in values, and `$${` for a literal `${`.
//!
//! No nesting and no other operators. An empty variable counts as unset. Values never reach a message.

/// What became of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filled {
    /// All of it is known.
    Text(String),
    /// A variable without a default is not set; the words say which.
    Unset(String),
    /// The text itself is wrong.
    Wrong(String),
}

/// Fills in a text that holds `${`.
pub(crate) fn fill(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Filled {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut unset = None;
    while let Some(start) = rest.find("${") {
        let (before, body) = (&rest[..start], &rest[start + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = body;
            continue;
        }
        out.push_str(before);
        let Some((inner, tail)) = body.split_once('}') else {
            return Filled::Wrong("`${` without `}`; a literal `${` is written `$${`".to_owned());
        };
        match expand(inner, env) {
            Filled::Text(value) => out.push_str(&value),
            Filled::Unset(why) => unset = unset.or(Some(why)),
            wrong @ Filled::Wrong(_) => return wrong,
        }
        rest = tail;
    }
    out.push_str(rest);
    unset.map_or(Filled::Text(out), Filled::Unset)
}

/// The names of the variables in a text.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    // A literal `$${` names none.
    text.match_indices("${").filter(|(at, _)| !text[..*at].ends_with('$')).map(|(at, mark)| {
        let name = &text[at + mark.len()..];
        &name[..name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len())]
    })
}

/// The value of what stands between the braces.
fn expand(inner: &str, env: &dyn Fn(&str) -> Option<String>) -> Filled {
    if inner.contains("${") {
        return Filled::Wrong(format!("`${{{inner}` is nested: a default is plain text"));
    }
    let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inner.len());
    let (name, operator) = inner.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Filled::Wrong(format!("`${{{inner}}}` names no variable; a literal `${{` is written `$${{`"));
    }
    let value = env(name).filter(|value| !value.is_empty());
    match (value, operator.get(..2).unwrap_or(operator)) {
        (Some(value), "" | ":-" | ":?") => Filled::Text(value),
        (None, "") => Filled::Unset(format!("`${{{name}}}` is not set")),
        (None, ":-") => Filled::Text(operator[2..].to_owned()),
        (None, ":?") => Filled::Unset(format!("`${{{name}}}` is not set: {}", operator[2..].trim())),
        _ => Filled::Wrong(format!("`{operator}` in `${{{inner}}}`: only `:-default` and `:?message` exist")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Filled {
        fill(text, &|name| match name {
            "HOST" => Some("h1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_filled_in() {
        for (text, wanted) in [
            ("${HOST}", "h1"),
            ("a${HOST}b${HOST}", "ah1bh1"),
            ("${NO:-d e}", "d e"),
            ("${EMPTY:-d}", "d"),
            ("${NO:-}", ""),
            ("${HOST:?m}", "h1"),
            ("$${HOST}", "${HOST}"),
            ("$$${HOST}", "$${HOST}"),
            ("$HOST", "$HOST"),
        ] {
            assert_eq!(filled(text), Filled::Text(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_not_set_is_said() {
        assert_eq!(filled("${NO}"), Filled::Unset("`${NO}` is not set".to_owned()));
        assert_eq!(filled("x${EMPTY:?tell me}"), Filled::Unset("`${EMPTY}` is not set: tell me".to_owned()));
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for text in ["${", "${}", "${1}", "${A-b}", "${A:+b}", "${A:-${B}}", "${ä}", "${A:=b}"] {
            assert!(matches!(filled(text), Filled::Wrong(_)), "{text}: {:?}", filled(text));
        }
    }
}
