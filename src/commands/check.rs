//! `check`: everything that is wrong with plans, touching no machine.

use crate::{
    cli::{CheckArgs, FindingFormat},
    commands::{self, print, source::Source},
    error::Exit,
    findings::Form,
    plan::Unset,
};

/// Checks plans; findings are data and go to stdout.
///
/// # Errors
/// When a file cannot be read.
pub fn check(args: &CheckArgs) -> commands::Result {
    let form = match args.format {
        FindingFormat::Human => Form::Human,
        FindingFormat::Json => Form::Json,
        FindingFormat::Github => Form::Github,
    };
    let mut code = Exit::OK;
    for path in &args.plans {
        let source = Source::open(Some(path))?;
        let loaded = source.load(&args.set, Unset::Warning);
        print(&loaded.render(form, &source.name, &String::from_utf8_lossy(&source.bytes)))?;
        if loaded.has_errors() {
            code = Exit::USAGE;
        } else if form == Form::Human {
            let plan = loaded.plan.as_ref();
            let (platforms, stages) = plan.map_or((0, 0), |p| (p.platforms.len(), p.stages.len()));
            print(&format!("{}: ok, {platforms} platforms, {stages} stages\n", source.name))?;
        }
    }
    Ok(code)
}
