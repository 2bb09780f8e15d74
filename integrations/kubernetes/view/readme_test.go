package view

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-gpu/lockstep/topology/labels"
)

var update = flag.Bool("update", false, "rewrite the tables of README.md")

const readme = "../README.md"

// section is what stands between two marks.
func section(name, body string) string {
	return "<!-- " + name + " -->\n" + body + "<!-- end -->"
}

func annotationTable() string {
	var b strings.Builder
	b.WriteString("| Annotation | Of the | Form | What it says |\n| --- | --- | --- | --- |\n")
	for _, a := range Annotations() {
		b.WriteString("| `" + a.Key + "` | " + string(a.Scope) + " | " + a.Form + " | " + a.Meaning + " |\n")
	}
	return b.String()
}

func aliasTables() string {
	var b strings.Builder
	for _, d := range []struct {
		dialect Dialect
		title   string
	}{{Volcano, "Volcano"}, {Kueue, "Kueue"}, {Coscheduling, "coscheduling (scheduler-plugins)"}, {KAI, "KAI-Scheduler"}} {
		b.WriteString("From " + d.title + ":\n\n| There | Here |\n| --- | --- |\n")
		for _, a := range Annotations() {
			for _, key := range a.Aliases[d.dialect] {
				b.WriteString("| `" + key + "` | `" + a.Key + "` |\n")
			}
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// flagTable reads the program's flags out of its source.
func flagTable(t *testing.T) string {
	source, err := os.ReadFile("../standalone/lockstep-scheduler/main.go")
	if err != nil {
		t.Skip("the program's source is not there:", err)
	}
	var b strings.Builder
	b.WriteString("| Flag | Default | What it says |\n| --- | --- | --- |\n")
	flags := regexp.MustCompile(`f\.\w+\((?:[^",]+, )?"([a-z-]+)", ([^,]+|view\.\w+), "([^"]*)"\)`).FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(flags), 15)
	for _, m := range flags {
		value := strings.Trim(m[2], `"`)
		switch value {
		case "view.DefaultSchedulerName":
			value = DefaultSchedulerName
		case "":
			value = "none"
		}
		b.WriteString("| `-" + m[1] + "` | " + value + " | " + m[3] + " |\n")
	}
	return b.String()
}

// configTable reads the fields of Config out of their comments.
func configTable(t *testing.T) string {
	source, err := os.ReadFile("config.go")
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("| Field | What it says |\n| --- | --- |\n")
	fields := regexp.MustCompile(`(?m)^\t(\w+) +\S+ +.json:"(\w+),omitempty". +// (.*)$`).FindAllStringSubmatch(string(source), -1)
	require.Equal(t, reflect.TypeFor[Config]().NumField()-1, len(fields), "all but Claims")
	for _, m := range fields {
		text := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(m[3], m[1]+" "), "is "), "are ")
		b.WriteString("| `" + m[2] + "` | " + text + " |\n")
	}
	return b.String()
}

// The tables of the README are what the code says; -update rewrites them.
func TestTablesOfTheReadme(t *testing.T) {
	data, err := os.ReadFile(readme)
	require.NoError(t, err)
	text := string(data)
	for name, body := range map[string]string{"annotations": annotationTable(), "aliases": aliasTables(), "flags": flagTable(t), "view": configTable(t)} { // each by itself
		pattern := regexp.MustCompile(`(?s)<!-- ` + name + ` -->\n.*?<!-- end -->`)
		require.Len(t, pattern.FindAllString(text, -1), 1, name)
		want := section(name, body)
		if *update {
			text = pattern.ReplaceAllLiteralString(text, want)
			continue
		}
		require.Equal(t, want, pattern.FindString(text), "go test -run Readme -update rewrites it")
	}
	if *update {
		require.NoError(t, os.WriteFile(readme, []byte(text), 0o644))
	}
	for _, key := range []string{KeyRank, KeyRoleRank, KeyWorldSize, KeyAttempt, SchedulerKey, QueuesKey} {
		require.Contains(t, text, "| `"+key+"` |")
	}
	for _, field := range regexp.MustCompile(`json:"(\w+)"`).FindAllStringSubmatch(settingsSource(t), -1) {
		require.Regexp(t, `\b`+field[1]+`\b`, text, "a field of scheduler.yaml")
	}
}

// settingsSource returns the source of the type settings.
func settingsSource(t *testing.T) string {
	data, err := os.ReadFile("queues.go")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(data), "type settings struct {")
	require.True(t, ok)
	body, _, _ := strings.Cut(rest, "\n}")
	return body
}

// The gang of the README is ready when its pods are there.
func TestGangOfTheReadme(t *testing.T) {
	data, err := os.ReadFile(readme)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1)
	require.Len(t, blocks, 1)
	var job batchv1.Job
	require.NoError(t, yaml.UnmarshalStrict([]byte(blocks[0][1]), &job))
	a := newAssembler(t, Config{Keys: []labels.Key{{Label: "topology.kubernetes.io/zone"}}})
	for i := range int(*job.Spec.Completions) {
		p := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: job.Spec.Template.Spec}
		p.Namespace, p.Name, p.UID = job.Namespace, job.Name+"-"+number(i), types.UID(number(i))
		p.Labels = map[string]string{"batch.kubernetes.io/job-completion-index": number(7 - i)}
		require.NoError(t, a.Upsert(p))
	}
	s := state(t, a, "vision/train")
	require.Equal(t, Ready, s.Phase, s.Detail)
	require.Equal(t, "train-7", s.Pods[0].Name)
	require.Equal(t, 64_000, int(s.Gang.GPUs(nil)))
}
