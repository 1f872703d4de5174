// Package slurm steers Slurm's jobs from outside: it reads the queue and the nodes, and gives each job that asked for
// Evenstep the nodes of the plan in one update. It knows Slurm through squeue and scontrol alone, in fixed formats.
//
// A job waits by a begin time, the hold limit ahead: when nobody moves that on, Slurm starts the job by itself. All that
// is remembered of a job stands in its comment, after the user's words:
//
//	evenstep workload=w global_batch=1024 samples=9e+07 | nodes=2-4 sizes=341x2,342
//
// The prolog and the task prolog read the batch sizes there and hand them to the training.
//
// Jobs without the comment are never touched.
package slurm
