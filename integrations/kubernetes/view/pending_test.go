package view

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
)

func explain(t testing.TB, cl *Cluster, s *State, held ...*lockstep.Plan) *lockstep.Explanation {
	t.Helper()
	e, err := adopted(t, cl, held...).Explain(&lockstep.Request{Gang: s.Gang})
	require.NoError(t, err)
	return &e
}

// The message is the same whatever is free, so that events deduplicate.
func TestMessageStaysWhileTheCauseDoes(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1"), newNode("n2")}})
	a := newAssembler(t, racks())
	for i := range 16 {
		require.NoError(t, a.Upsert(member("big", 16, i)))
	}
	seats := NewSeats(&cl, nil)
	var held []*lockstep.Plan
	texts, conditions := map[string]bool{}, map[string]bool{}
	for i := range 4 {
		p := bound(newPod("p"+number(i)), "n1")
		require.NoError(t, a.Upsert(p))
		plan, err := seats.Observe(state(t, a, lockstep.JobID("ns/pod:"+p.Name)))
		require.NoError(t, err)
		held = append(held, plan)
		s := state(t, a, "ns/big")
		e := explain(t, &cl, s, held...)
		texts[Message(e)] = true
		conditions[Condition(s, e).Message] = true
	}
	require.Equal(t, map[string]bool{"the gang needs 16 members at once; too little is free, gpu asked 16": true}, texts)
	require.Greater(t, len(conditions), 1, "the condition says how much is free")
}

func TestReasonsHaveWords(t *testing.T) {
	for _, r := range []lockstep.Reason{
		lockstep.ReasonCapacity, lockstep.ReasonBusy, lockstep.ReasonFragmented, lockstep.ReasonConstraint, lockstep.ReasonUnhealthy,
		lockstep.ReasonQuota, lockstep.ReasonReserved, lockstep.ReasonUnsupported, "", placement.ReasonPreempted,
	} {
		text := Message(&lockstep.Explanation{Verdict: lockstep.Verdict{Reason: r, Want: 2, Level: "rack"}, Notes: []lockstep.Note{{Stage: "quota", Reason: "borrowing"}, {Stage: "x"}, {Stage: "y", Reason: r}}})
		require.Equal(t, 1, strings.Count(text, "quota: borrowing"))
		require.NotContains(t, text, "\n")
		require.Equal(t, r == lockstep.ReasonFragmented, strings.Contains(text, "level rack"))
	}
	require.Contains(t, Message(&lockstep.Explanation{Verdict: lockstep.Verdict{Feasible: true}}), "its turn")
}

func TestConditions(t *testing.T) {
	a := newAssembler(t, racks(), member("g", 2, 0))
	c := Condition(state(t, a, "ns/g"), nil)
	require.Equal(t, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "1 pods of 2 are there"}, c)
	require.Error(t, a.Upsert(member("g", 2, 1, Prefix+"index", "x")))
	c = Condition(state(t, a, "ns/g"), &lockstep.Explanation{})
	require.Equal(t, corev1.PodReasonSchedulerError, c.Reason)
	require.Contains(t, c.Message, "g-1")
	c = Condition(state(t, newAssembler(t, racks(), member("g", 1, 0)), "ns/g"), &lockstep.Explanation{Notes: []lockstep.Note{{Stage: "x", Detail: strings.Repeat("任", 1000)}}})
	require.LessOrEqual(t, len(c.Message), maxMessage)
	require.True(t, utf8.ValidString(c.Message))
}
