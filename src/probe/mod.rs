//! Programs that run on the host under test.
