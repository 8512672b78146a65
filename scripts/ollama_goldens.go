// What Ollama's own template package makes of rows of JSON, for scripts/ollama_goldens.py.
//
// A row has a template, messages, tools, think and suffix; the answer has its text or its error.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/template"
)

type row struct {
	Template string          `json:"template"`
	Messages []api.Message   `json:"messages"`
	Tools    api.Tools       `json:"tools"`
	Think    *api.ThinkValue `json:"think"`
	Prompt   string          `json:"prompt"`
	Suffix   string          `json:"suffix"`
}

type answer struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
}

// execute renders one row; a panic of Ollama is an error like any other.
func execute(line []byte) (text string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	var r row
	if err := json.Unmarshal(line, &r); err != nil {
		return "", err
	}
	parsed, err := template.Parse(r.Template)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, template.Values{
		Messages:   r.Messages,
		Tools:      r.Tools,
		Prompt:     r.Prompt,
		Suffix:     r.Suffix,
		Think:      r.Think.Bool(),
		ThinkLevel: r.Think.String(),
		IsThinkSet: r.Think != nil,
	})
	return out.String(), err
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for in.Scan() {
		text, err := execute(in.Bytes())
		if err != nil {
			_ = out.Encode(answer{Error: err.Error()})
			continue
		}
		_ = out.Encode(answer{Text: text})
	}
}
