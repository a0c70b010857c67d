//! `init`: a first plan to start from.

use crate::{
    cli::InitArgs,
    commands::{self, replace, source::LOCAL_PLAN, talk},
    error::{Error, Exit},
};

/// Writes a first plan, for the machine at hand.
///
/// # Errors
/// When the folder has a plan already or cannot be written.
pub fn init(args: &InitArgs) -> commands::Result {
    std::fs::create_dir_all(&args.dir).map_err(|e| {
        Error::caused(Exit::USAGE, format!("failed to make the folder {}", args.dir.display()), &e)
    })?;
    let path = args.dir.join("plan.yaml");
    if path.exists() {
        return Err(
            Error::new(Exit::USAGE, format!("{} exists already", path.display())).hint("name another folder")
        );
    }
    replace(&path, LOCAL_PLAN)?;
    talk(&format!("wrote {0}; next: `planrun check {0}`, then `planrun {0}`\n", path.display()));
    Ok(Exit::OK)
}
