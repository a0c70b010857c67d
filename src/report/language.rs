//! The fixed words of reports, by language. Text that comes from a plan or a host stays as it is.
//!
//! Invariant: every language has the same words; a test compares them.

use std::sync::LazyLock;

use minijinja::Value;

/// A language of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::En, Self::Zh];

    /// Its code, as on the command line.
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Zh => "zh",
        }
    }

    /// Its words as stored, JSON.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::En => include_str!("../../templates/lang/en.json"),
            Self::Zh => include_str!("../../templates/lang/zh.json"),
        }
    }
}

impl std::str::FromStr for Language {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::code).join(" or ");
        Self::ALL
            .into_iter()
            .find(|l| l.code() == s)
            .ok_or_else(|| format!("`{s}` is no language of reports: {}", known()))
    }
}

type Words = serde_json::Map<String, serde_json::Value>;

static EN: LazyLock<Words> = LazyLock::new(|| serde_json::from_str(Language::En.text()).unwrap_or_default());
static ZH: LazyLock<Words> = LazyLock::new(|| serde_json::from_str(Language::Zh.text()).unwrap_or_default());

fn map(language: Language) -> &'static Words {
    match language {
        Language::En => &EN,
        Language::Zh => &ZH,
    }
}

/// All words for a template; they are ours and need no escape.
pub(crate) fn words(language: Language) -> Value {
    Value::from_pairs(map(language).iter().map(|(key, text)| {
        (key.clone(), Value::from_safe_string(text.as_str().unwrap_or_default().to_owned()))
    }))
}

/// The word for a value such as an outcome, or the value itself where no word is known.
pub(crate) fn word(language: Language, group: &str, key: &Value) -> Value {
    let known =
        key.as_str().and_then(|k| map(language).get(&format!("{group}_{k}"))?.as_str().map(str::to_owned));
    known.map_or_else(|| key.clone(), Value::from_safe_string)
}
