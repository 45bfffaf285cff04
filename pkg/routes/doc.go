// Package routes is the route controller without its surroundings: Nodes, a
// ledger and a route table go in; changes to the table, proofs and reports come
// out. One engine serves Kubernetes and files alike; what differs comes in by
// small interfaces (Ledger, Prover, Observer) and by calls to the Engine.
//
// It must not know any cloud, log, or read flags or the environment, and no
// code path writes to the table other than by a plan of vpc.Plan. Its clock is
// package time, so that tests run it in a testing/synctest bubble.
package routes
