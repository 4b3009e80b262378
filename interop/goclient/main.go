// Command goclient runs the steps of Apache's Go client against one cluster, told what to do by the Go test on the
// other side of its standard streams, in the lines that java/common/interop/Main.java also speaks.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmq/ringmq/interop"
)

// stepPatience bounds one step.
const stepPatience = 75 * time.Second

// step is one named expectation: it returns a short detail worth printing, or panics through env's checks.
type step struct {
	phase, name string
	run         func(e *env) string
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: goclient NAMESRV BROKER BROKERNAME CLUSTER PREFIX")
		os.Exit(2)
	}
	e := newEnv(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	var steps []step
	for _, s := range [][]step{topicSteps, sendSteps, batchSteps, pullSteps, pushSteps, orderSteps, retrySteps, groupSteps, replySteps, controlSteps, filterSteps, errorSteps, txnSteps} {
		steps = append(steps, s...)
	}
	steps = slices.Concat(steps, outageSteps(), restartSteps(), groupRestartSteps(), txnRestartSteps())
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() && in.Text() != "quit" {
		runPhase(e, steps, strings.TrimPrefix(in.Text(), "run "), out)
	}
}

func runPhase(e *env, steps []step, phase string, out *json.Encoder) {
	due := []step{}
	plan := []string{}
	only := regexp.MustCompile("^(?:" + os.Getenv("INTEROP_STEPS") + ")$")
	for _, s := range steps {
		if s.phase == phase && (phase != "steady" || only.String() == "^(?:)$" || only.MatchString(s.name)) {
			due = append(due, s)
			plan = append(plan, s.name)
		}
	}
	out.Encode(map[string]any{"plan": plan})
	lanes := 5 // steps of "steady" share nothing but the servers; the other phases keep their order
	if phase != "steady" {
		lanes = 1
	}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		free = make(chan struct{}, lanes)
	)
	for _, s := range due {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			r := runStep(e, s)
			mu.Lock()
			defer mu.Unlock()
			out.Encode(r)
		})
	}
	wg.Wait()
	out.Encode(map[string]any{"done": phase})
}

func runStep(e *env, s step) interop.Result {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	done := make(chan interop.Result, 1)
	go func() {
		r := interop.Result{Step: s.name}
		defer func() {
			if p := recover(); p != nil {
				r.OK = false
				if f, ok := p.(failure); ok {
					r.Detail = string(f)
				} else {
					r.Detail = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
				}
			}
			done <- r
		}()
		r.Detail = s.run(e.with(ctx))
		r.OK = true
	}()
	var r interop.Result
	select {
	case r = <-done:
	case <-time.After(stepPatience + 5*time.Second):
		r = interop.Result{Step: s.name, Detail: fmt.Sprintf("not finished after %v", stepPatience)}
	}
	r.Millis = time.Since(begin).Milliseconds()
	return r
}
