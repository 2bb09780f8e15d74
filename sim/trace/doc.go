// Package trace reads records of what GPU clusters ran, and makes up such
// records, as lists of jobs that a simulation can submit.
//
// # Model
//
// A [Job] is a row: who submitted how many devices' worth of work when, and how
// long it ran. Times count from the trace's own zero, which a reader sets to
// the midnight (UTC) before the first submission where the source has dates.
// A list of jobs is sorted by submit time, then by ID; IDs are unique; every
// job has at least one device and runs for more than no time.
//
// # Sources
//
//   - [ReadCSV]: comma separated rows with the header
//     job_id,tenant,submit_s,duration_s,gpus,state, as extracts are kept.
//   - [ReadPhilly]: the JSON job log of Microsoft's Philly traces (Jeon et al.,
//     USENIX ATC 2019): tenants are virtual clusters, a job's duration is the
//     time its attempts ran together and its size is that of its widest attempt.
//   - [ReadHelios]: cluster_log.csv of SenseTime's Helios traces (Hu et al., SC
//     2021): tenants are virtual clusters.
//   - [Synthetic]: seeded jobs with the marginals published for Philly.
//
// Rows that ask for no device or ran no time are left out, as every study of
// these traces does, and counted in [Trace.Skipped]. Anything malformed is a
// *lockstep.Error that names the line and the field; then nothing is returned.
//
// # Determinism and concurrency
//
// Readers are pure functions of their input, Synthetic of its seed. Values
// returned are the caller's. A reader needs memory for the jobs alone, except
// ReadPhilly, which decodes one job at a time.
package trace
