// Who made the models of a family of entries; the list of entries is grouped by it.
const MAKERS = {
  qwen: "Qwen (Alibaba)", deepseek: "DeepSeek", llama: "Llama (Meta)", mistral: "Mistral AI", gemma: "Gemma (Google)", "gpt-oss": "OpenAI", phi: "Phi (Microsoft)", glm: "GLM (Z.ai)",
  kimi: "Kimi (Moonshot AI)", minimax: "MiniMax", nemotron: "NVIDIA", "audio-flamingo": "NVIDIA", cohere: "Cohere", granite: "Granite (IBM)", hermes: "Nous Research", olmo: "Ai2", molmo: "Ai2",
  hunyuan: "Hunyuan (Tencent)", ernie: "Baidu", qianfan: "Baidu", internlm: "InternLM (Shanghai AI Lab)", internvl: "InternLM (Shanghai AI Lab)", minicpm: "MiniCPM (OpenBMB)", ling: "Ling (Ant Group)",
  lfm: "Liquid AI", exaone: "EXAONE (LG)", falcon: "Falcon (TII)", mimo: "MiMo (Xiaomi)", jamba: "AI21", seed: "Seed (ByteDance)", step: "StepFun", baichuan: "Baichuan", smollm: "Hugging Face", zephyr: "Hugging Face",
  idefics: "Hugging Face", solar: "Solar (Upstage)", xlam: "Salesforce", apertus: "Apertus (Swiss AI)", chameleon: "Llama (Meta)", emu: "Emu (BAAI)", h2o: "H2O.ai", longcat: "LongCat (Meituan)", orion: "OrionStar", rnj: "Essential AI",
  vicuna: "LMSYS", yi: "Yi (01.AI)",
};
// Templates of programs, for many models; listed last.
const PROGRAMS = { fastchat: "FastChat", llamafactory: "LLaMA-Factory", lmdeploy: "LMDeploy", xtuner: "XTuner", xtuner_v1: "XTuner" };

// [[maker, [entry, ...]], ...]: makers in the order of MAKERS, then others, then programs.
export function groupByMaker(entries, otherLabel) {
  const known = [...new Set(Object.values(MAKERS)), otherLabel, ...new Set(Object.values(PROGRAMS))];
  const groups = new Map(known.map((maker) => [maker, []]));
  for (const entry of entries) groups.get(MAKERS[entry.family] ?? PROGRAMS[entry.family] ?? otherLabel).push(entry);
  return [...groups].filter(([, members]) => members.length);
}
