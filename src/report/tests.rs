//! Tests of whole reports over the example scorecard.

#![allow(clippy::unwrap_used, reason = "test code")]

use super::*;
use crate::score::{self, example};

fn card() -> Scorecard {
    score::scorecard(&example::observations())
}

fn show(format: Format) -> String {
    render(format, &card(), &Options::default()).unwrap()
}

/// For the eye: `PLANRUN_LOOK=/tmp/x cargo test --lib look -- --ignored` renders the templates as they stand on disk.
#[test]
#[ignore = "writes files to look at"]
fn look() {
    let Some(to) = std::env::var_os("PLANRUN_LOOK") else { return };
    for language in Language::ALL {
        for format in Format::ALL {
            let name =
                if format == Format::Junit { "junit.xml".to_owned() } else { format.file_name().to_owned() };
            let file = format!("{}/templates/{name}.j2", env!("CARGO_MANIFEST_DIR"));
            let template =
                Some(Template { name: name.clone(), text: std::fs::read_to_string(file).unwrap() });
            let options = Options { language, template };
            let out = std::path::Path::new(&to).join(format!("{}.{name}", language.code()));
            match render(format, &card(), &options) {
                Ok(text) => std::fs::write(out, text).unwrap(),
                Err(e) => panic!("{e}: {}", e.source),
            }
        }
    }
}
